# Completion of cosmic for bash: source <(cosmic completion bash)
_cosmic() {
    local IFS=$'\n' word name
    local -a answer names
    mapfile -t answer < <("${COMP_WORDS[0]}" __complete bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null)
    COMPREPLY=("${answer[@]:1}")
    word=${COMP_WORDS[COMP_CWORD]}
    case ${answer[0]} in
        files) mapfile -t names < <(compgen -f -- "$word") ;;
        folders) mapfile -t names < <(compgen -d -- "$word") ;;
    esac
    if [[ ${#COMPREPLY[@]} -eq 0 ]]; then
        # Nothing but files: bash itself writes a slash behind folders, and quotes what must be.
        [[ ${#names[@]} -gt 0 ]] && compopt -o filenames
        COMPREPLY=("${names[@]}")
    else
        for name in "${names[@]}"; do COMPREPLY+=("$(printf '%q' "$name")"); done
    fi
    # MODEL@ and PATH= go on: no blank behind them.
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=@/] ]]; then compopt -o nospace; fi
}
complete -F _cosmic cosmic
