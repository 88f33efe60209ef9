#compdef cosmic
# Completion of cosmic for zsh: source <(cosmic completion zsh), after compinit
_cosmic() {
    local -a answer whole begun meanings
    local line word
    answer=("${(@f)$("${words[1]}" __complete zsh "${(@)words[1,CURRENT]}" 2>/dev/null)}")
    for line in "${(@)answer[2,-1]}"; do
        word=${line%%$'\t'*}
        case $word in
            '') ;;
            *[=@/]) begun+=("$word") ;;
            *) whole+=("$word"); meanings+=("$word${${line#$word}/$'\t'/  -- }") ;;
        esac
    done
    # MODEL@ and PATH= go on: no blank behind them.
    (( $#begun )) && compadd -S '' -a begun
    (( $#whole )) && compadd -l -d meanings -a whole
    case ${answer[1]} in
        files) _files ;;
        folders) _files -/ ;;
    esac
}
if [[ $funcstack[1] == _cosmic ]]; then _cosmic "$@"; else compdef _cosmic cosmic; fi
