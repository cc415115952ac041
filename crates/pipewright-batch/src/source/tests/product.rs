//! Tests of the combinations of lists. The expected results are GNU parallel's (20221122), except where a test says so.

use super::*;

fn values(values: &[&str]) -> List {
    List::Values(values.iter().map(OsString::from).collect())
}

fn products(command: &[&str], lists: Vec<List>) -> Vec<String> {
    let jobs = product(template(command), lists);
    words_of(jobs).into_iter().map(|words| words.join(" ")).collect()
}

#[test]
fn the_last_list_varies_fastest() {
    let lists = || vec![values(&["a", "b"]), values(&["x", "y", "z"])];
    let expected = ["a x", "a y", "a z", "b x", "b y", "b z"].map(|pair| format!("echo {pair}"));
    assert_eq!(products(&["echo"], lists()), expected);
    assert_eq!(products(&["echo", "{1}", "{2}"], lists()), expected);
    assert_eq!(products(&["echo", "{}"], lists()), expected);
    assert_eq!(products(&["echo", "{#}"], lists())[5], "echo 6");
    let three = vec![values(&["a", "b"]), values(&["c", "d"]), values(&["e", "f"])];
    let expected = ["ace", "acf", "ade", "adf", "bce", "bcf", "bde", "bdf"];
    assert_eq!(products(&["{1}{2}{3}"], three), expected);
}

#[test]
fn one_list_is_that_list() {
    assert_eq!(products(&["echo"], vec![values(&["a", ""])]), ["echo a", "echo "]);
}

#[test]
fn lists_from_inputs_are_combined_too() {
    let lines = || List::Lines(source("l1\nl2\n"));
    let expected = ["echo a l1", "echo a l2", "echo b l1", "echo b l2"];
    assert_eq!(products(&["echo"], vec![values(&["a", "b"]), lines()]), expected);
    let expected = ["echo l1 a", "echo l1 b", "echo l2 a", "echo l2 b"];
    assert_eq!(products(&["echo"], vec![lines(), values(&["a", "b"])]), expected);
    let expected = ["echo l1 l1", "echo l1 l2", "echo l2 l1", "echo l2 l2"];
    assert_eq!(products(&["echo"], vec![lines(), lines()]), expected);
}

#[test]
fn an_empty_list_has_no_combinations() {
    // GNU parallel takes an empty second list for one empty value.
    for lists in [
        vec![],
        vec![values(&[])],
        vec![values(&["a"]), values(&[])],
        vec![values(&[]), values(&["a"])],
        vec![values(&["a"]), List::Lines(source(""))],
    ] {
        assert_eq!(products(&["echo"], lists), Vec::<String>::new());
    }
}

#[test]
fn errors_name_the_arguments_or_the_line() {
    let jobs = product(template(&["{3}"]), vec![values(&["a"]), values(&["b"])]);
    let message = "in the arguments: the command uses column 3, and the record has 2 columns";
    assert_eq!(error_of(jobs), (0, message.to_owned()));
    let lists = vec![List::Lines(source("a\nb\0")), values(&["x", "y"])];
    let (count, message) = error_of(product(template(&["echo"]), lists));
    assert_eq!(count, 2);
    assert!(message.starts_with("line 2 of the input: a value has a NUL byte"), "{message}");
    let long = List::Lines(source("abc").max_record_bytes(2));
    let (count, message) = error_of(product(template(&["echo"]), vec![values(&["x"]), long]));
    assert_eq!(count, 0);
    assert!(message.starts_with("line 1 of the input: longer than 2"), "{message}");
}

#[test]
fn words_are_split_into_command_and_lists() {
    let split = |text: &str| split_lists(text.split(' ').map(OsString::from));
    let (command, lists) = split("cmd {} :: ::: a b :::: f g ::: ::: x").unwrap();
    assert_eq!(command, ["cmd", "{}", "::"]);
    let values = |words: &[&str]| ListWords::Values(words.iter().map(OsString::from).collect());
    let file = |path: &str| ListWords::File(path.into());
    assert_eq!(lists, [values(&["a", "b"]), file("f"), file("g"), values(&[]), values(&["x"])]);
    assert_eq!(split("cmd a").unwrap(), (vec!["cmd".into(), "a".into()], vec![]));
    let beside = |lists: &[ListWords]| ListWords::SideBySide(lists.to_vec());
    let (_, lists) = split("cmd ::: a b :::+ c d ::::+ f g ::: x").unwrap();
    let first = [values(&["a", "b"]), values(&["c", "d"]), file("f"), file("g")];
    assert_eq!(lists, [beside(&first), values(&["x"])]);
    for word in [":::+", "::::+"] {
        let error = split(&format!("cmd {word} b")).unwrap_err();
        assert_eq!(error.to_string(), format!("in the arguments: no list before \"{word}\""));
    }
}

#[test]
fn lists_side_by_side_end_with_the_shortest_and_are_combined_with_others() {
    let beside = |lists: Vec<List>| List::SideBySide(lists);
    let first = || beside(vec![values(&["a", "b", "c"]), values(&["1", "2"])]);
    assert_eq!(products(&["echo"], vec![first()]), ["echo a 1", "echo b 2"]);
    let expected = ["echo a 1 X", "echo a 1 Y", "echo b 2 X", "echo b 2 Y"];
    assert_eq!(products(&["echo"], vec![first(), values(&["X", "Y"])]), expected);
    let expected = ["echo X a 1", "echo X b 2", "echo Y a 1", "echo Y b 2"];
    assert_eq!(products(&["echo"], vec![values(&["X", "Y"]), first()]), expected);
}

#[test]
fn linked_lists_begin_again_until_the_longest_has_ended() {
    let linked = |lists: Vec<List>| {
        let jobs = Records::linked(lists).fill(template(&["echo"]));
        words_of(jobs).into_iter().map(|words| words.join(" ")).collect::<Vec<_>>()
    };
    let lists = vec![values(&["a", "b", "c"]), values(&["1", "2"]), List::Lines(source("x\n"))];
    assert_eq!(linked(lists), ["echo a 1 x", "echo b 2 x", "echo c 1 x"]);
    let lists = vec![values(&["a"]), List::Lines(source("1\n2\n"))];
    assert_eq!(linked(lists), ["echo a 1", "echo a 2"]);
    assert_eq!(linked(vec![values(&["a"]), values(&[])]), [""; 0]);
}

#[test]
fn a_list_in_a_file_is_opened() {
    assert!(matches!(ListWords::File("-".into()).open(), Ok(List::Lines(_))));
    let error = ListWords::File("no-such-list".into()).open().unwrap_err();
    assert!(error.to_string().starts_with("cannot open \"no-such-list\": "), "{error}");
}
