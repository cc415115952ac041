
# Prints the words of the command that the cursor is in, which follows the options of `run` or `pipe`.
# Fails if the cursor is still in the options.
function __fish_pipewright_command_words
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    contains -- "$words[2]" run pipe
    or return 1
    set -l i 3
    set -l count (count $words)
    set -l ends_options 0
    while test $i -le $count
        switch $words[$i]
            case --
                set ends_options 1
                set i (math $i + 1)
                break
            case @OPTIONS@
                set i (math $i + 2)
            case '-*'
                set i (math $i + 1)
            case '*'
                set ends_options 1
                break
        end
    end
    test $i -le (math $count + 1)
    or return 1
    if test $ends_options -eq 0
        and string match -q -- '-*' $current
        return 1
    end
    if test $words[2] = pipe
        # The file that the pipeline reads stands first.
        test "$words[$i]" = '<'
        and set i (math $i + 2)
        for at in (seq $i $count)
            test $words[$at] = '|'
            and set i (math $at + 1)
        end
    end
    test $i -le $count
    and string escape -- $words[$i..-1]
    # The current word is not complete, and is passed on as it was typed.
    echo -- $current
end

function __fish_pipewright_command
    set -l words (__fish_pipewright_command_words)
    complete -C (string join ' ' -- $words)
end

complete -c pipewright -n '__fish_pipewright_command_words > /dev/null' -f -a '(__fish_pipewright_command)'
