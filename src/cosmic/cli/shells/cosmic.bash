# Completion of cosmic for bash: source <(cosmic completion bash)
_cosmic() {
    local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} word done
    local -a words
    # MODEL@SYSTEM and PATH=VALUE are one word each to cosmic; bash breaks them before '@' and behind '='.
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    word=${words[-1]}
    done=${word%"${word##*["$COMP_WORDBREAKS"]}"}
    IFS=$'\n'
    COMPREPLY=($(COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) _COSMIC_COMPLETE=complete_bash "$1" 2>/dev/null))
    COMPREPLY=("${COMPREPLY[@]#"${done%@}"}")
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=@] ]]; then compopt -o nospace; fi
}
complete -o default -F _cosmic cosmic
