//! Tests of several values in one job, and of columns. The expected results are those of GNU xargs (4.9.0) and GNU
//! parallel (20221122), except where a test says so.

use super::*;

fn packed(command: &[&str], input: &str, packing: Packing) -> Vec<String> {
    let jobs = source(input).records().pack(template(command), packing);
    words_of(jobs).into_iter().map(|words| words.join(" ")).collect()
}

#[test]
fn a_job_has_so_many_values_and_the_last_one_has_the_rest() {
    let two = Packing::default().most_values(2);
    assert_eq!(packed(&["echo"], "a\nb\nc\n", two), ["echo a b", "echo c"]);
    assert_eq!(packed(&["echo", "{}", "-", "{/}"], "d/a\nb\n", two), ["echo d/a b - a b"]);
    // A column that the last job lacks is empty.
    assert_eq!(packed(&["echo", "{2}-{1}-{#}"], "a\nb\nc\n", two), ["echo b-a-1", "echo -c-2"]);
    // And one that no job can have is refused.
    let jobs = source("a\nb\n").records().pack(template(&["{3}"]), two);
    let message = "line 2 of the input: the command uses column 3, and the record has 2 columns";
    assert_eq!(error_of(jobs), (0, message.to_owned()));
}

#[test]
fn as_many_values_as_fit_are_packed_as_by_xargs() {
    // `seq 100000 | xargs echo | awk '{print NF}'`
    let numbers: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    let jobs = source(&numbers).records().pack(template(&["echo"]), Packing::default());
    let counts: Vec<usize> = words_of(jobs).iter().map(|words| words.len() - 1).collect();
    assert_eq!(counts, [23_695, 21_844, 21_844, 21_844, 10_773]);
    // `printf '%s\n' a bb ccc dddd | xargs -s 12 echo`
    let small = Packing::default().most_bytes(12);
    assert_eq!(
        packed(&["echo"], "a\nbb\nccc\ndddd\n", small),
        ["echo a bb", "echo ccc", "echo dddd"]
    );
    // A value that never fits is alone. GNU xargs ends there.
    assert_eq!(
        packed(&["echo"], "a\nmuch longer\nb\n", small),
        ["echo a", "echo much longer", "echo b"]
    );
}

#[test]
fn a_word_around_a_value_is_repeated_only_if_that_is_asked_for() {
    let words = ["echo", "x{}y", "{.}", "{#}a{}"];
    let repeated = Template::parse(words).unwrap().repeat_words();
    let jobs = source("1.c\n2.c\n").records().pack(repeated, Packing::default());
    assert_eq!(words_of(jobs), [["echo", "x1.cy", "x2.cy", "1", "2", "1a1.c", "1a2.c"]]);
    let jobs = source("1\n2\n").records().pack(template(&["x{}y"]), Packing::default());
    assert_eq!(words_of(jobs), [["x1 2y"]]);
}

#[test]
fn the_bytes_of_a_job_are_counted_exactly() {
    for words in [
        &["echo"][..],
        &["echo", "{}", "{/}", "-"],
        &["x{}y", "{.}"],
        &["a{2}b{1/}", "{}{}"],
        &["{1}{}{#}"],
        &["-{//}-", "literal"],
    ] {
        for repeats in [false, true] {
            let parsed = Template::parse(words).unwrap();
            let template = Arc::new(if repeats { parsed.repeat_words() } else { parsed });
            let values = ["d/e.f", "", "long value.x", "y"];
            let (mut record, mut bytes) = (None::<crate::job::Record>, template.fixed_bytes());
            for value in values {
                let next = crate::job::Record::new(value);
                bytes += template.value_bytes(record.as_ref(), &next);
                match &mut record {
                    Some(record) => record.append(&next),
                    None => record = Some(next),
                }
            }
            let job = template.job(1, record.unwrap()).unwrap();
            let real: usize = job.argv(1).unwrap().iter().map(|word| word.len() + 1).sum();
            // The space after the last value inside a word is counted too, and the most digits of a number.
            let more = if repeats { 4 * 20 } else { 20 + 2 * words.len() };
            assert!(bytes >= real && bytes <= real + more, "{words:?} {repeats}: {bytes} {real}");
        }
    }
}

#[test]
fn values_are_split_into_columns_before_they_are_packed() {
    let split = |value: &[u8]| {
        let mut parts = value.split(|byte| *byte == b',');
        let first = crate::job::Record::new(parts.next().unwrap_or_default());
        parts.fold(first, crate::job::Record::and)
    };
    let jobs = source("a,b\nc,d\n").records().columns(split).fill(template(&["echo", "{2}{1}"]));
    assert_eq!(words_of(jobs), [["echo", "ba"], ["echo", "dc"]]);
    let two = Packing::default().most_values(2);
    let jobs = source("a,b\nc,d\n").records().columns(split).pack(template(&["{4}{1}"]), two);
    assert_eq!(words_of(jobs), [["da"]]);
    let jobs = source("a,b\nc\n").records().columns(split).fill(template(&["echo", "{2}"]));
    let message = "line 2 of the input: the command uses column 2, and the record has 1 column";
    assert_eq!(error_of(jobs), (1, message.to_owned()));
    let lists = vec![List::Values(vec!["a,b".into()]), List::Values(vec!["c,d".into()])];
    let jobs = Records::combined(lists).columns(split).fill(template(&["echo"]));
    assert_eq!(words_of(jobs), [["echo", "a", "b", "c", "d"]]);
}
