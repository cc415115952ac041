//! `pipewright pipe`: a pipeline without a shell.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use pipewright::{
    CancelToken, Command, Error, ErrorKind, Pipeline, PipelineOutput, Scope, Source, StageEnd,
    Stdio,
};
use pipewright_os::base::error::Quoted;
use serde::Serialize;

use crate::args::{ContainKind, PipelineOptions};
use crate::run::command::{check_link, count_only, set_containment, set_environment, watched};
use crate::run::interrupt::{Followed, Interrupt};
use crate::run::report::{EndReport, ReportTarget, Used, lossy, signal_of};
use crate::run::tee::{TeeFile, both};
use crate::run::{code_of, ending, lost_output};
use crate::stuck::StartWatch;
use crate::{Failure, exit_code, print_error};

/// Runs the pipeline, and writes its report.
pub(crate) fn run(options: &PipelineOptions) -> Result<i32, Failure> {
    let parsed = Parsed::parse(&options.words)?;
    let cancel = CancelToken::new();
    let token = cancel.clone();
    let has_begun = move || token.is_waited_for();
    let grace = options.common.kill_after.duration;
    let limit = options.common.timeout();
    let watch = StartWatch::new(limit, grace, "the pipeline".to_owned(), has_begun);
    let target = ReportTarget::open(&options.common)?;
    if options.common.tee.is_some() && parsed.output.is_some() {
        return Err(Failure(
            "--tee writes to a file and to stdout: leave out the '>', or the --tee".to_owned(),
        ));
    }
    let tee = TeeFile::new(options.common.tee.as_deref(), false)?;
    for (word, program) in parsed.hints.iter().filter(|_| !options.common.quiet) {
        let word = word.to_string_lossy();
        print_error(&format!(
            "'{word}' is an argument of {} here, because pipe is no shell: for that, use sh -c '...'; to pass it \
             without this hint, write '\\{word}'",
            Quoted(program)
        ));
    }
    let shares_terminal = options.common.contain != ContainKind::Group;
    let interrupt = Interrupt::catch(&cancel, shares_terminal, Followed::Nothing, grace)
        .map_err(Failure::cannot("catch signals"))?;
    if options.common.verbose {
        ending::print_start(&parsed.stages);
    }
    let attempt = |kill_scope| -> Result<_, Failure> {
        let mut pipeline = build(options, &parsed, tee.as_ref(), kill_scope)?;
        set_rules(&mut pipeline, options, &cancel);
        Ok(pipeline.output())
    };
    let mut result = attempt(Scope::Tree)?;
    if matches!(&result, Err(error) if matches!(error.kind(), ErrorKind::Unsupported)) {
        // No supervisor is available: falls back to weaker containment, which the report names.
        result = attempt(Scope::Child)?;
    }
    interrupt.command_ended();
    watch.iter().for_each(StartWatch::rests);
    if let Some(output) = result.as_ref().ok().filter(|_| options.common.verbose) {
        ending::print_end(&name(&parsed), output);
    }
    print_result(options, &parsed, &result);
    let code = match &result {
        Ok(output) => code_of(output, &interrupt, &options.common),
        Err(error) => exit_code::of_error(error),
    };
    let code = match target {
        Some(target) => target.write_or_fail(&PipeReport::new(options, &parsed, &result), code),
        None => code,
    };
    Ok(interrupt.end(result.as_deref().ok(), false, code))
}

fn build(
    options: &PipelineOptions,
    parsed: &Parsed,
    tee: Option<&Arc<TeeFile>>,
    kill_scope: Scope,
) -> Result<Pipeline<'static>, Failure> {
    let mut commands = Vec::with_capacity(parsed.stages.len());
    for words in &parsed.stages {
        let (program, args) =
            words.split_first().ok_or_else(|| Failure("the pipeline has an empty stage".into()))?;
        let mut command = Command::new(program);
        command.args(args);
        set_environment(&mut command, &options.common.environment)?;
        set_containment(&mut command, options.common.contain, kill_scope);
        command.stderr(match tee {
            Some(tee) => both(Source::Stderr, tee),
            None if options.common.passes_through() => Stdio::tee(),
            None => Stdio::inherit(),
        });
        commands.push(command);
    }
    if let Some(first) = commands.first_mut() {
        first.stdin(match &parsed.input {
            Some(file) => Stdio::open(file),
            None => Stdio::inherit(),
        });
    }
    if let Some(OutputFile::Create(file) | OutputFile::Append(file)) = &parsed.output {
        check_link(file)?;
    }
    if let Some(last) = commands.last_mut() {
        last.stdout(match &parsed.output {
            Some(OutputFile::Create(file)) => watched(Stdio::create(file), &options.common),
            Some(OutputFile::Append(file)) => watched(Stdio::append(file), &options.common),
            None => match tee {
                Some(tee) => both(Source::Stdout, tee),
                None if options.common.passes_through() => Stdio::tee(),
                None => Stdio::inherit(),
            },
        });
    }
    Ok(Pipeline::new(commands))
}

fn set_rules(pipeline: &mut Pipeline<'_>, options: &PipelineOptions, cancel: &CancelToken) {
    if let Some(timeout) = options.common.timeout() {
        pipeline.timeout(timeout);
    }
    if let Some(timeout) = options.common.idle_timeout() {
        pipeline.idle_timeout(timeout);
    }
    pipeline
        .kill_grace(options.common.kill_after.duration)
        .stop_signal(options.common.stop_signal)
        .cancel(cancel);
    pipeline.linger(options.common.linger.to_linger()).pipefail(!options.no_pipefail);
    pipeline.limit(count_only(options.common.max_output));
    if options.common.contain == ContainKind::Group {
        pipeline.foreground();
    }
}

/// Prints a message about an error, or about the end of the pipeline.
fn print_result(
    options: &PipelineOptions,
    parsed: &Parsed,
    result: &Result<PipelineOutput, Error>,
) {
    let output = match result {
        Ok(output) => output,
        Err(error) => return print_error(&error.to_string()),
    };
    if let Some(failed) = lost_output(output) {
        print_error(&failed.to_string());
    }
    let times = ending::Times { common: &options.common, total: None };
    let message = ending::about_end(&name(parsed), output, &times);
    if let Some(message) = message.filter(|_| !options.common.quiet) {
        print_error(&message);
    }
}

/// Returns the programs as they are typed: `"a | b"`.
fn name(parsed: &Parsed) -> String {
    let programs = parsed.stages.iter().filter_map(|words| words.first());
    let programs: Vec<_> = programs.map(|program| program.to_string_lossy()).collect();
    ending::quoted(&programs.join(" | "))
}

/// A parsed pipeline.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parsed {
    stages: Vec<Vec<OsString>>,
    input: Option<PathBuf>,
    output: Option<OutputFile>,
    /// Words that mean something to a shell, and the program that gets each as an argument.
    hints: Vec<(OsString, OsString)>,
}

/// The file that the pipeline writes to.
#[derive(Debug, PartialEq, Eq)]
enum OutputFile {
    Create(PathBuf),
    Append(PathBuf),
}

const OPERATORS: [&str; 4] = ["|", "<", ">", ">>"];

/// Operators of a shell that are arguments here.
const OF_A_SHELL: [&str; 9] = ["||", "&&", ";", "&", "2>&1", "2>", "2>/dev/null", "|&", "&>"];

impl Parsed {
    fn parse(words: &[OsString]) -> Result<Parsed, Failure> {
        let mut rest = words;
        let mut parsed = Parsed::default();
        if let [operator, more @ ..] = rest {
            if operator == "<" {
                let [file, more @ ..] = more else { return Err(no_file("<")) };
                parsed.input = Some(file.into());
                rest = more;
            }
        }
        if let [before @ .., operator, file] = rest {
            parsed.output = match operator.to_str() {
                Some(">") => Some(OutputFile::Create(file.into())),
                Some(">>") => Some(OutputFile::Append(file.into())),
                _ => None,
            };
            if parsed.output.is_some() {
                rest = before;
            }
        }
        let stages: Vec<&[OsString]> = rest.split(|word| word == "|").collect();
        let count = stages.len();
        for (index, stage) in stages.into_iter().enumerate() {
            if stage.first().is_none_or(|program| program.is_empty()) {
                let number = index + 1;
                return Err(Failure(match count {
                    1 => "the pipeline has no command".to_owned(),
                    _ => format!(
                        "stage {number} of {count} has no command; to pass '|' as an argument, write '\\|'"
                    ),
                }));
            }
            parsed.hints.extend(shell_words(stage));
            let words: Result<Vec<_>, _> = stage.iter().map(unescape).collect();
            parsed.stages.push(words?);
        }
        Ok(parsed)
    }
}

/// Returns the arguments of a stage that are probably meant for a shell, each with the program that gets it.
fn shell_words(stage: &[OsString]) -> impl Iterator<Item = (OsString, OsString)> {
    let program = stage.first().cloned().unwrap_or_default();
    // find -exec CMD ';'
    let ends_list = stage
        .iter()
        .any(|word| ["-exec", "-execdir", "-ok", "-okdir"].iter().any(|action| word == action));
    let is_of_shell = move |word: &&OsString| {
        OF_A_SHELL.iter().any(|operator| word == operator) && !(ends_list && *word == ";")
    };
    stage.iter().skip(1).filter(is_of_shell).map(move |word| (word.clone(), program.clone()))
}

/// Removes the backslash of an escaped operator.
fn unescape(word: &OsString) -> Result<OsString, Failure> {
    match word.to_str() {
        Some("<") => Err(misplaced("<", "before the first command")),
        Some(operator @ (">" | ">>")) => {
            Err(misplaced(operator, "after the last command, before its file"))
        }
        // Of several backslashes one is removed, so that every word can be written.
        Some(escaped) => match escaped.strip_prefix('\\') {
            Some(word) if is_operator(word.trim_start_matches('\\')) => Ok(word.into()),
            _ => Ok(escaped.into()),
        },
        None => Ok(word.clone()),
    }
}

fn is_operator(word: &str) -> bool {
    OPERATORS.contains(&word) || OF_A_SHELL.contains(&word)
}

fn misplaced(operator: &str, place: &str) -> Failure {
    Failure(format!(
        "'{operator}' must stand {place}; to pass it as an argument, write '\\{operator}'"
    ))
}

fn no_file(operator: &str) -> Failure {
    Failure(format!("no file after '{operator}'"))
}

/// The report. Fields are only ever added.
#[derive(Debug, Serialize)]
struct PipeReport {
    schema: &'static str,
    /// Words as they were parsed.
    command: Vec<String>,
    /// Result of the deciding stage.
    #[serde(flatten)]
    ended: EndReport,
    /// Index of the deciding stage.
    decided_by: Option<usize>,
    attempts: u32,
    stages: Vec<StageReport>,
}

#[derive(Debug, Serialize)]
struct StageReport {
    command: Vec<String>,
    pid: Option<u32>,
    exit_code: Option<i32>,
    signal: Option<String>,
    #[serde(flatten)]
    used: Used,
}

impl PipeReport {
    fn new(
        options: &PipelineOptions,
        parsed: &Parsed,
        result: &Result<PipelineOutput, Error>,
    ) -> PipeReport {
        let ends = result.as_ref().map(|output| output.stages.as_slice()).unwrap_or_default();
        let stage =
            |(index, words): (usize, &Vec<_>)| StageReport::new(lossy(words), ends.get(index));
        PipeReport {
            schema: "pipewright.pipe/1",
            command: lossy(&options.words),
            ended: EndReport::new(result.as_ref().map(|output| &output.whole)),
            decided_by: result.as_ref().ok().map(|output| output.decided_by),
            attempts: 1,
            stages: parsed.stages.iter().enumerate().map(stage).collect(),
        }
    }
}

impl StageReport {
    fn new(command: Vec<String>, end: Option<&StageEnd>) -> StageReport {
        let status = end.map(|end| end.status);
        StageReport {
            command,
            pid: end.map(|end| end.pid),
            exit_code: status.and_then(|status| status.code()),
            signal: status.and_then(signal_of),
            used: Used::of(end.and_then(|end| end.usage)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Parsed, String> {
        let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
        Parsed::parse(&words).map_err(|Failure(words)| words)
    }

    fn stages(list: &[&[&str]]) -> Vec<Vec<OsString>> {
        list.iter().map(|words| words.iter().map(OsString::from).collect()).collect()
    }

    #[test]
    fn commands_and_files_are_separated() {
        let parsed = parse("< in grep -v x | sort | wc -l > out").unwrap();
        let commands: &[&[&str]] = &[&["grep", "-v", "x"], &["sort"], &["wc", "-l"]];
        assert_eq!(parsed.stages, stages(commands));
        assert_eq!(parsed.input, Some("in".into()));
        assert_eq!(parsed.output, Some(OutputFile::Create("out".into())));
        let parsed = parse("a >> log").unwrap();
        assert_eq!(parsed.output, Some(OutputFile::Append("log".into())));
        assert_eq!(parse("a").unwrap().stages, stages(&[&["a"]]));
    }

    #[test]
    fn an_escaped_operator_is_an_argument() {
        let parsed = parse(r"grep \| x | grep \>> \> y | \< \x").unwrap();
        let commands: &[&[&str]] = &[&["grep", "|", "x"], &["grep", ">>", ">", "y"], &["<", r"\x"]];
        assert_eq!(parsed.stages, stages(commands));
        assert_eq!((parsed.input, parsed.output), (None, None));
    }

    #[test]
    fn an_escaped_operator_with_a_backslash_can_be_written() {
        let parsed = parse(r"echo \\| \\\>> \\ \\x \| | cat").unwrap();
        let commands: &[&[&str]] = &[&["echo", r"\|", r"\\>>", r"\\", r"\\x", "|"], &["cat"]];
        assert_eq!(parsed.stages, stages(commands));
    }

    #[test]
    fn words_for_a_shell_are_noticed_unless_they_are_escaped() {
        let hints = |text: &str| -> Vec<String> {
            let hint = |(word, program): (OsString, OsString)| {
                format!("{} {}", program.to_string_lossy(), word.to_string_lossy())
            };
            parse(text).unwrap().hints.into_iter().map(hint).collect()
        };
        assert_eq!(hints("a && b | c 2>&1"), ["a &&", "c 2>&1"]);
        assert_eq!(hints("a ; b || c"), ["a ;", "a ||"]);
        assert!(hints("find . -exec cat {} ; | wc").is_empty());
        assert_eq!(hints("find . -exec cat {} ; && b"), ["find &&"]);
        assert!(hints(r"grep \&& x | grep a;b").is_empty());
        assert_eq!(
            parse(r"grep \&& \\; \x").unwrap().stages,
            stages(&[&["grep", "&&", r"\;", r"\x"]])
        );
    }

    #[test]
    fn an_invalid_pipeline_is_refused_with_a_remedy() {
        for (text, words) in [
            ("|", r"stage 1 of 2 has no command; to pass '|' as an argument, write '\|'"),
            ("a | | b", r"stage 2 of 3 has no command; to pass '|' as an argument, write '\|'"),
            ("a | b |", r"stage 3 of 3 has no command; to pass '|' as an argument, write '\|'"),
            ("a | > f", r"stage 2 of 2 has no command; to pass '|' as an argument, write '\|'"),
            ("< f", "the pipeline has no command"),
            ("<", "no file after '<'"),
            (
                "a < f",
                r"'<' must stand before the first command; to pass it as an argument, write '\<'",
            ),
            (
                "a > f | b",
                r"'>' must stand after the last command, before its file; to pass it as an argument, write '\>'",
            ),
            (
                "a >>",
                r"'>>' must stand after the last command, before its file; to pass it as an argument, write '\>>'",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), words, "{text}");
        }
    }
}
