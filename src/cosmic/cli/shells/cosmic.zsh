#compdef cosmic
# Completion of cosmic for zsh: source <(cosmic completion zsh), after compinit
_cosmic() {
    local -a whole begun shown
    local line word tab=$'\t'
    local -x _COSMIC_COMPLETE=complete_fish _TYPER_COMPLETE_FISH_ACTION=get-args
    local -x _TYPER_COMPLETE_ARGS="${(j: :)words[1,CURRENT]}"
    for line in "${(@f)$("${words[1]}" 2>/dev/null)}"; do
        word=${line%%$tab*}
        case $word in
            '') ;;
            *[=@]) begun+=("$word") ;;
            *) whole+=("$word"); shown+=("$word${${line#$word}/$tab/  -- }") ;;
        esac
    done
    if (( $#begun + $#whole == 0 )); then _files; return; fi
    [[ $PREFIX == --*=* ]] && compset -P 1 '*='
    # No space behind MODEL@ and PATH=: they are continued.
    (( $#begun )) && compadd -S '' -a begun
    (( $#whole )) && compadd -l -d shown -a whole
}
if [[ $funcstack[1] == _cosmic ]]; then _cosmic "$@"; else compdef _cosmic cosmic; fi
