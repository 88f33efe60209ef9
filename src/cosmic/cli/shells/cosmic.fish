# Completion of cosmic for fish: cosmic completion fish > ~/.config/fish/completions/cosmic.fish
function __cosmic_answer
    set -l given (commandline -opc)
    set -l token (commandline -ct)
    set -l answer ($given[1] __complete fish $given "$token" 2>/dev/null)
    switch "$answer[1]"
        case files
            __fish_complete_path "$token"
        case folders
            __fish_complete_directories "$token"
    end
    printf '%s\n' $answer[2..-1]
end
complete -c cosmic -f -a '(__cosmic_answer)'
