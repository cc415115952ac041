//! The bar and the lines, at the times of a clock that the test sets.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::vocabulary::{AttemptOutcome, Halt};
use crate::watch::tests::{end, ended, settled, started};

const WIDE: Screen = Screen { columns: || 100, is_ansi: true, colors: false };

fn after(start: Instant, seconds: f64) -> Instant {
    start + Duration::from_secs_f64(seconds)
}

/// Starts jobs and settles them at the same time.
fn settle(
    progress: &mut Progress<Vec<u8>>,
    jobs: std::ops::Range<u64>,
    outcome: JobOutcome,
    now: Instant,
) {
    for job in jobs {
        progress.event(&started(job, 1, "true"), now);
        let end = end(job, AttemptOutcome::Exited(0), 0.0, 0.0);
        progress.event(&ended(end, "true", ""), now);
        progress.event(&settled(job, outcome, Some("exit 7")), now);
    }
}

/// Returns what was written since the last call.
fn written(progress: &mut Progress<Vec<u8>>) -> String {
    String::from_utf8(std::mem::take(&mut progress.writer)).unwrap()
}

#[test]
fn the_bar_shows_counts_rate_time_left_and_the_longest_jobs() {
    let start = Instant::now();
    let mut progress = Progress::new(Vec::new(), ProgressKind::Bar, WIDE, start);
    progress.added(200, Some(200));
    settle(&mut progress, 0..48, JobOutcome::Succeeded, start);
    settle(&mut progress, 48..50, JobOutcome::Failed, after(start, 5.0));
    let messages = "pipewright: job 48 failed: exit 7\npipewright: job 49 failed: exit 7\n";
    assert_eq!(written(&mut progress), messages);
    for (job, at) in [(100, 1.0), (101, 2.0), (102, 3.0), (103, 4.0)] {
        let text = format!("./convert {job}\n");
        let mut started = started(job, 1, &text);
        if let Event::Started { key, .. } = &mut started {
            key.attempt = u32::from(job == 101) + 1;
        }
        progress.event(&started, after(start, at));
    }
    progress.tick(after(start, 5.0));
    assert_eq!(
        written(&mut progress),
        "50/200  ━━━━━━──────────────────   25 %  2 failed  4 running  10/s  15 s left\n\
         \x20          4 s  job 100  ./convert 100\n\
         \x20          3 s  job 101, attempt 2  ./convert 101\n\
         \x20          2 s  job 102  ./convert 102"
    );
    progress.hide();
    assert_eq!(written(&mut progress), "\r\x1b[3A\x1b[J");
    progress.hide();
    assert_eq!(written(&mut progress), "", "nothing is there to erase");
}

#[test]
fn the_time_left_is_unknown_while_the_total_is() {
    let start = Instant::now();
    let mut progress = Progress::new(Vec::new(), ProgressKind::Bar, WIDE, start);
    progress.added(64, None);
    settle(&mut progress, 0..10, JobOutcome::Succeeded, after(start, 1.0));
    progress.tick(after(start, 2.0));
    assert_eq!(written(&mut progress), "10/64+  0 running  5.0/s");
    progress.event(&Event::InputEnded { jobs: 30 }, after(start, 2.0));
    progress.tick(after(start, 3.0));
    assert_eq!(
        written(&mut progress),
        "\r\x1b[J10/30  ━━━━━━━─────────────────   33 %  0 running  3.3/s  6 s left"
    );
}

#[test]
fn the_time_left_follows_the_recent_rate() {
    let start = Instant::now();
    let mut progress = Progress::new(Vec::new(), ProgressKind::Plain, WIDE, start);
    progress.added(1000, Some(1000));
    // 100 in the first second, then one a second for two minutes.
    settle(&mut progress, 0..100, JobOutcome::Succeeded, after(start, 1.0));
    for second in 2..=120_u64 {
        settle(
            &mut progress,
            98 + second..99 + second,
            JobOutcome::Succeeded,
            after(start, second as f64),
        );
    }
    let counts = &progress.counts;
    assert_eq!(counts.done(), 219);
    let rate = counts.per_second(after(start, 120.0)).unwrap();
    assert!((0.9..1.2).contains(&rate), "{rate}");
}

#[test]
fn jobs_of_an_earlier_run_are_done_but_no_part_of_the_rate() {
    let start = Instant::now();
    let mut progress = Progress::new(Vec::new(), ProgressKind::Bar, WIDE, start);
    progress.counts.resumed = 90;
    progress.added(100, Some(100));
    settle(&mut progress, 90..95, JobOutcome::Succeeded, after(start, 1.0));
    progress.tick(after(start, 1.0));
    assert!(written(&mut progress).ends_with("95 %  0 running  5.0/s  1 s left"));
}

#[test]
fn the_bar_is_drawn_at_most_ten_times_a_second() {
    let start = Instant::now();
    let mut progress = Progress::new(Vec::new(), ProgressKind::Bar, WIDE, start);
    let mut drawings = 0;
    for millis in 0..1000 {
        let now = after(start, f64::from(millis) / 1e3);
        settle(&mut progress, 0..1, JobOutcome::Succeeded, now);
        let next = progress.tick(now).unwrap();
        assert!(next > now && next <= now + IDLE_REDRAW);
        drawings += u32::from(!written(&mut progress).is_empty());
    }
    assert_eq!(drawings, 10);
    // Unchanged, it is drawn for its times once a second.
    let now = after(start, 1.5);
    progress.tick(now);
    assert_eq!(progress.tick(now), Some(now + IDLE_REDRAW));
}

#[test]
fn messages_are_above_the_bar_and_escaped() {
    let start = Instant::now();
    let mut progress = Progress::new(Vec::new(), ProgressKind::Bar, WIDE, start);
    progress.tick(start);
    written(&mut progress);
    progress.event(&Event::Note("a\x1b[2Jb".to_owned()), start);
    assert_eq!(written(&mut progress), "\r\x1b[Jpipewright: a\\u{1b}[2Jb\n");
    progress.tick(after(start, 0.1));
    assert_eq!(written(&mut progress), "0/0+  0 running");
    progress.event(&Event::Halted(Halt::Drain), start);
    assert!(written(&mut progress).contains("pipewright: no more jobs start: interrupted\n"));
}

#[test]
fn no_bar_is_drawn_while_output_is_written() {
    let start = Instant::now();
    let mut progress = Progress::new(Vec::new(), ProgressKind::Bar, WIDE, start);
    progress.tick(start);
    written(&mut progress);
    progress.output_begins();
    assert_eq!(written(&mut progress), "\r\x1b[J");
    let now = after(start, 5.0);
    assert!(progress.tick(now).unwrap() > now);
    assert_eq!(written(&mut progress), "");
    progress.output_ended(b"text\n", now);
    progress.tick(now);
    assert_eq!(written(&mut progress), "0/0+  0 running");
}

#[test]
fn the_bar_and_messages_start_on_a_line_of_their_own() {
    let start = Instant::now();
    let mut progress = Progress::new(Vec::new(), ProgressKind::Bar, WIDE, start);
    let write = |progress: &mut Progress<Vec<u8>>, text: &[u8], now| {
        progress.output_begins();
        progress.output_ended(text, now);
    };
    // The rest of the line may come.
    write(&mut progress, b"no newline", start);
    let end = progress.tick(start).unwrap();
    assert_eq!((written(&mut progress).as_str(), end), ("", after(start, 1.0)));
    progress.tick(end);
    assert_eq!(written(&mut progress), "\n0/0+  0 running");
    progress.hide();
    write(&mut progress, b"no newline", end);
    written(&mut progress);
    progress.message("text");
    assert_eq!(written(&mut progress), "\npipewright: text\n");
    progress.message("text");
    assert_eq!(written(&mut progress), "pipewright: text\n");
}

#[test]
fn a_terminal_without_movements_has_one_line() {
    let start = Instant::now();
    let screen = Screen { columns: || 40, is_ansi: false, colors: false };
    let mut progress = Progress::new(Vec::new(), ProgressKind::Bar, screen, start);
    progress.event(&started(1, 1, "sleep"), start);
    progress.tick(start);
    assert_eq!(written(&mut progress), "\r0/0+  1 running");
    progress.hide();
    assert_eq!(written(&mut progress), format!("\r{}\r", " ".repeat(15)));
}

#[test]
fn failures_are_red_only_with_colors() {
    let start = Instant::now();
    for colors in [false, true] {
        let screen = Screen { colors, ..WIDE };
        let mut progress = Progress::new(Vec::new(), ProgressKind::Bar, screen, start);
        settle(&mut progress, 0..1, JobOutcome::Failed, start);
        progress.tick(start);
        assert_eq!(written(&mut progress).contains("\x1b[31m1 failed\x1b[0m"), colors);
    }
}

#[test]
fn a_log_has_a_line_after_five_seconds_then_at_each_tenth_and_after_thirty_seconds() {
    let start = Instant::now();
    let lines = |jobs: u64, seconds: f64| {
        let mut progress = Progress::new(Vec::new(), ProgressKind::Plain, WIDE, start);
        progress.added(jobs, Some(jobs));
        let mut next = progress.tick(start).unwrap();
        assert_eq!(next, after(start, 5.0));
        let mut lines = Vec::new();
        for job in 0..jobs {
            let now = after(start, (job + 1) as f64 * seconds / jobs as f64);
            settle(&mut progress, job..job + 1, JobOutcome::Succeeded, now);
            next = progress.tick(now).unwrap();
            assert!(next > now);
            lines.extend(written(&mut progress).lines().map(str::to_owned));
        }
        lines
    };
    assert_eq!(lines(1000, 4.9), [""; 0], "a short batch says nothing");
    let tenths = lines(100, 10.0);
    assert_eq!(tenths.len(), 6, "{tenths:?}");
    assert_eq!(tenths[0], "pipewright: 50/100 (50 %), 0 running, 10/s, 5 s left");
    assert_eq!(tenths[5], "pipewright: 100/100 (100 %), 0 running, 10/s, 0 s left");
    // Without a change, too: somebody may wait for the only job.
    let mut progress = Progress::new(Vec::new(), ProgressKind::Plain, WIDE, start);
    for second in 0..=66 {
        progress.tick(after(start, f64::from(second)));
    }
    let text = written(&mut progress);
    assert_eq!(text, "pipewright: 0/0+, 0 running\n".repeat(3), "at 5, 35 and 65 s");
}

#[test]
fn no_progress_is_only_messages() {
    let start = Instant::now();
    let mut progress = Progress::new(Vec::new(), ProgressKind::None, WIDE, start);
    settle(&mut progress, 0..10, JobOutcome::Succeeded, start);
    assert_eq!(progress.tick(after(start, 60.0)), None);
    assert_eq!(written(&mut progress), "");
    settle(&mut progress, 10..11, JobOutcome::Failed, start);
    progress.message("out of disk");
    let messages = "pipewright: job 10 failed: exit 7\npipewright: out of disk\n";
    assert_eq!(written(&mut progress), messages);
}

proptest! {
    #[test]
    fn no_line_is_as_wide_as_the_terminal(
        text in ".{0,120}|[\u{0}-\u{1f}\u{200b}-\u{202e}日本]{0,60}",
        width in 0_usize..160,
        counts in prop::array::uniform4(0_u64..2_000_000_000),
        seconds in 0_u64..10_000_000,
        colors in any::<bool>(),
    ) {
        let start = Instant::now();
        let mut progress = Progress::new(Vec::new(), ProgressKind::Bar, Screen { colors, ..WIDE }, start);
        let [resumed, added, total, job] = counts;
        progress.counts.resumed = resumed;
        progress.added(added, (total % 2 == 0).then_some(total));
        settle(&mut progress, 0..job % 5, JobOutcome::Failed, start);
        progress.event(&started(job, 1, &text), start);
        let now = start + Duration::from_secs(seconds);
        for line in bar_lines(&progress.counts, now, progress.screen, width) {
            let plain = strip_colors(&line.painted);
            prop_assert!(!plain.chars().any(char::is_control), "{plain:?}");
            prop_assert_eq!(columns(&plain), line.columns);
            prop_assert!(line.columns < width.max(1), "{plain:?} in {width}");
        }
    }
}

fn strip_colors(text: &str) -> String {
    ["\x1b[31m", "\x1b[34m", "\x1b[2m", "\x1b[0m"]
        .iter()
        .fold(text.to_owned(), |text, code| text.replace(code, ""))
}
