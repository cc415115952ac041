//! Values as `xargs` and GNU parallel take them: several in a job, columns, lists side by side, delimiters and `-t`.

use std::process::Command;

use super::{Place, err, out, refused, version};
use crate::random::{Random, seed};

/// Returns what a batch that keeps the order prints, line by line.
#[track_caller]
fn printed(input: &str, args: &[&str]) -> Vec<String> {
    let output = Place::new().batch_of(input, &[&["-k"], args].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", err(&output));
    out(&output).lines().map(ToOwned::to_owned).collect()
}

#[test]
fn several_values_are_one_job() {
    let lines = "a\nb\nc d\n";
    assert_eq!(printed(lines, &["-n2", "--", "echo"]), ["a b", "c d"]);
    assert_eq!(printed(lines, &["-n", "2", "-P", "2", "--", "echo", "{2}-{1}"]), ["b-a", "-c d"]);
    assert_eq!(printed("", &["-n2", "--", "echo", ":::", "1", "2", "3"]), ["1 2", "3"]);
    assert_eq!(printed(lines, &["-m", "--", "echo", "x{}y"]), ["xa b c dy"]);
    assert_eq!(printed(lines, &["-X", "--", "echo", "x{}y"]), ["xay xby xc dy"]);
    assert_eq!(printed("1\n2\n33\n", &["-m", "-s", "10", "--", "echo"]), ["1 2", "33"]);
}

#[test]
fn as_many_values_fit_into_a_job_as_with_xargs() {
    let numbers: String = (1..=50_000).map(|number| format!("{number}\n")).collect();
    let counts = printed(&numbers, &["-m", "--", "sh", "-c", "echo $#", "sh"]);
    // `seq 50000 | xargs sh -c 'echo $#' sh`
    assert_eq!(counts, ["23693", "21842", "4465"]);
}

#[test]
fn random_values_are_packed_as_by_xargs() {
    if version("xargs").is_none() {
        return;
    }
    let (place, first) = (Place::new(), seed(20_261_128));
    let command = ["sh", "-c", "printf '<%s>' \"$@\"; echo", "sh"];
    // The words of the command, the longest value, and their ends.
    let least = command.iter().map(|word| word.len() + 1).sum::<usize>() as u64 + 31;
    for seed in first..first + 40 {
        let mut random = Random::of(seed);
        let value = |random: &mut Random| "x".repeat(random.below(31) as usize) + "\n";
        let input: String = (0..1 + random.below(60)).map(|_| value(&mut random)).collect();
        let mut options = Vec::new();
        if random.one_in(2) {
            options.extend(["-n".to_owned(), (1 + random.below(5)).to_string()]);
        }
        if options.is_empty() || random.one_in(2) {
            options.extend(["-s".to_owned(), (least + random.below(200)).to_string()]);
        }
        place.write("input", &input);
        let mut theirs = Command::new("xargs");
        theirs.args(["-d", "\n", "-a", "input"]).args(&options).args(command);
        let theirs = theirs.current_dir(place.path("")).output().unwrap();
        let mut ours = vec!["-k", "-a", "input", "-m"];
        ours.extend(options.iter().map(String::as_str));
        let ours = place.batch(&[&ours[..], &["--"], &command].concat());
        assert_eq!(out(&ours), out(&theirs), "seed {seed}, {options:?}: {}", err(&ours));
    }
}

#[test]
fn values_are_separated_by_any_character() {
    assert_eq!(printed("a,b c,d", &["-d,", "--", "echo"]), ["a", "b c", "d"]);
    assert_eq!(printed("a\tb\n", &["-d", "\\t", "--", "echo", "[{}]"]), ["[a]", "[b", "]"]);
    assert_eq!(printed("a\x1eb", &["-d", "\\x1e", "-n2", "--", "echo"]), ["a b"]);
}

#[test]
fn another_text_stands_for_the_value() {
    let words = ["-I", "%", "--", "echo", "%", "{}/%"];
    assert_eq!(printed("a\nb\n", &words), ["a {}/a", "b {}/b"]);
}

#[test]
fn lines_have_columns() {
    let words = ["--", "echo", "{2}-{1}"];
    assert_eq!(printed("a , b\nc,d\n", &[&["--colsep", ","], &words[..]].concat()), ["b-a", "d-c"]);
    assert_eq!(printed("a  b\n", &[&["--colsep", " +"], &words[..]].concat()), ["b-a"]);
    assert_eq!(printed("a|b\n", &[&["--colsep", "\\|"], &words[..]].concat()), ["b-a"]);
    // Letters are those of Unicode, in both cases.
    assert_eq!(printed("ä|ö\n", &[&["--colsep", "\\W"], &words[..]].concat()), ["ö-ä"]);
    assert_eq!(printed("aÄb\n", &[&["--colsep", "(?i)ä"], &words[..]].concat()), ["b-a"]);
    let list = [&["--colsep", "-"], &words[..], &[":::", "1-2", "3-4"]].concat();
    assert_eq!(printed("", &list), ["2-1", "4-3"]);
    let place = Place::new();
    let bad = place.batch_of("a\n", &["--colsep", "(", "--", "echo", "{1}"]);
    refused(&bad, &["--colsep \"(\": unclosed group"]);
    let short = place.batch_of("a\n", &[&["--colsep", ","], &words[..]].concat());
    refused(&short, &["line 1 of stdin: the command uses column 2, and the record has 1 column"]);
}

#[test]
fn lists_stand_side_by_side() {
    let beside = ["--", "echo", ":::", "a", "b", ":::+", "1", "2", ":::", "x", "y"];
    assert_eq!(printed("", &beside), ["a 1 x", "a 1 y", "b 2 x", "b 2 y"]);
    let linked = ["--link", "--", "echo", ":::", "a", "b", "c", ":::", "1", "2"];
    assert_eq!(printed("", &linked), ["a 1", "b 2", "c 1"]);
}

#[test]
fn options_for_values_need_values() {
    let place = Place::new();
    refused(&place.batch_of("true\n", &["-n2"]), &["-n needs a command that takes the values"]);
    refused(&place.batch_of("a\n", &["-s", "100", "--", "echo"]), &["-s needs -n, -m or -X"]);
    refused(&place.batch_of("a\n", &["--link", "--", "echo"]), &["--link is for lists"]);
    refused(&place.batch_of("a\n", &["-d", "ab", "--", "echo"]), &["\"ab\" is not one character"]);
    refused(&place.batch_of("a\n", &["-n0", "--", "echo"]), &["must be at least 1"]);
    refused(&place.batch(&["--", "echo", ":::+", "a"]), &["no list before \":::+\""]);
}

#[test]
fn commands_are_printed_as_they_start() {
    let output = Place::new().batch_of("a b\nc\n", &["-t", "-j1", "--", "echo"]);
    assert_eq!((out(&output), err(&output)), ("a b\nc\n", "echo 'a b'\necho c\n"));
}

#[test]
fn a_resumed_log_reads_packed_values_again_as_before() {
    let place = Place::new();
    let lines: String = (1..=5000).map(|number| format!("{number},x\n")).collect();
    place.write("list", &lines);
    let script = "echo $* >> ran; test ! -e fail";
    place.write("fail", "");
    let options = ["--from", "list", "--log", "run.db", "-n2", "--colsep", ",", "-j1"];
    let command = ["--", "sh", "-c", script, "sh"];
    let first = place.batch(&[&options[..], &["--halt=soon,fail=1"], &command].concat());
    assert_eq!(first.status.code(), Some(123), "{}", err(&first));
    std::fs::remove_file(place.path("fail")).unwrap();
    let again = place.batch(&["--resume", "--retry-failed", "-j8", "run.db"]);
    assert_eq!(again.status.code(), Some(0), "{}", err(&again));
    assert!(err(&again).contains("2500 ok"), "{}", err(&again));
    let ran = place.lines("ran");
    assert!(ran.iter().all(|line| line.split(' ').count() == 4), "{ran:?}");
}

#[test]
fn stdin_is_cut_into_blocks_of_whole_lines() {
    let count = ["--", "sh", "-c", "wc -l"];
    let lines: String = (1..=1000).map(|number| format!("{number:03}\n")).collect();
    let counts = printed(&lines, &[&["--pipe", "--block", "1600"], &count[..]].concat());
    assert_eq!(counts.iter().map(|line| line.trim()).collect::<Vec<_>>(), ["400", "400", "200"]);
    assert_eq!(printed("a\nb\n", &["--pipe", "--", "cat"]), ["a", "b"]);
    // A line that is longer than a block has one of its own.
    let long = format!("a\n{}\nb\n", "x".repeat(3 << 20));
    let bytes = printed(&long, &["--pipe", "--", "wc", "-c"]);
    let bytes: Vec<_> = bytes.iter().map(|line| line.trim().parse::<usize>().unwrap()).collect();
    assert_eq!(bytes, [2, (3 << 20) + 1, 2]);
    let place = Place::new();
    refused(&place.batch_of("a\n", &["--pipe"]), &["--pipe needs a command"]);
    refused(&place.batch(&["--pipe", "--", "cat", ":::", "a"]), &["--pipe does not fit lists"]);
}

#[test]
fn a_large_stdin_is_piped_to_jobs_in_bounded_memory() {
    let place = Place::new();
    // 200 MiB, in an address space that could not hold them.
    let script = "ulimit -v 4000000; yes 0123456789abcdef | head -c 209715200 |
        $PW batch --quiet -j2 --pipe --block 1M -- wc -c | awk '{s+=$1} END {print s}'";
    let output = place.sh(script);
    assert_eq!((out(&output), err(&output)), ("209715200\n", ""));
}
