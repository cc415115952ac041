//! The page: correct, bounded and inert.

use super::*;
use crate::vocabulary::AttemptOutcome;
use crate::watch::tests::{at, end, ended, every_event, facts, settled, started};

/// Runs one attempt of a job to its end.
fn run(
    model: &mut PageModel,
    job: u64,
    outcome: AttemptOutcome,
    times: (f64, f64),
    texts: (&str, &str),
) {
    let (start, seconds) = times;
    let word = if outcome.is_success() { JobOutcome::Succeeded } else { JobOutcome::Failed };
    let slot = u32::try_from(job % u64::from(facts().slots)).unwrap() + 1;
    model.event(&started(job, slot, texts.0), at(start));
    let done = at(start + seconds);
    model.event(&ended(end(job, outcome, start, seconds), texts.0, texts.1), done);
    model.event(&settled(job, word, None), done);
}

fn data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("id=\"data\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn failures_come_first_with_their_last_lines() {
    let mut model = PageModel::new(facts());
    run(&mut model, 1, AttemptOutcome::Exited(0), (0.0, 1.0), ("./convert a", "fine"));
    run(
        &mut model,
        2,
        AttemptOutcome::Exited(7),
        (0.5, 2.0),
        ("./convert b", "reading\nno such file"),
    );
    model.is_over();
    let page = model.html();
    assert!(page.contains("<h1>1 ok, 1 failed in 2.5 s</h1>"), "{page}");
    assert!(page.contains("<pre>reading\nno such file</pre>"));
    assert!(!page.contains("fine"), "the output of a job that succeeded");
    let place = |text: &str| page.find(text).unwrap();
    assert!(place("no such file") < place("Slots over time"));
    assert!(place("id=\"a2-1\"") < place("id=\"a1-1\""), "failed attempts are the first rows");
}

#[test]
fn a_job_that_succeeds_at_last_is_no_failure() {
    let mut model = PageModel::new(facts());
    let failed = end(1, AttemptOutcome::TimedOut, 0.0, 1.0);
    model.event(&ended(failed, "x", "slow"), at(1.0));
    assert!(model.html().contains("slow"));
    model.event(&settled(1, JobOutcome::Succeeded, None), at(2.0));
    let page = model.html();
    assert!(!page.contains("slow") && page.contains("1 ok, 0 failed"));
}

#[test]
fn a_page_of_a_batch_that_runs_says_so_and_what_is_ahead() {
    let mut model = PageModel::new(facts());
    model.event(&Event::InputEnded { jobs: 20 }, at(0.0));
    for job in 1..=8 {
        run(&mut model, job, AttemptOutcome::Exited(0), (job as f64 - 1.0, 1.0), ("x", ""));
    }
    for job in [9, 10] {
        let text = format!("./convert {job}");
        model.event(&started(job, 1, &text), at(8.0));
    }
    // 8 of 20 jobs took 8 s.
    let ahead = Ahead { running: 2, left: Some(10), seconds: Some(12.0) };
    assert_eq!(model.ahead(), Some(ahead));
    let page = model.html();
    assert!(page.contains("<h1>Running: 8 ok, 0 failed in 8.0 s</h1>"), "{page}");
    let words =
        "2 running · 10 left · about 12 s until the end, at 08:00:20 UTC · as of 08:00:08 UTC";
    assert!(page.contains(words), "{page}");
    assert!(
        page.contains("<span data-start=\"1800000008.000\">0 s</span> <code>./convert 9</code>"),
        "{page}"
    );
    assert!(page.contains("<rect class=\"now\""));
    let data = data(&page);
    assert_eq!(
        (&data["is_running"], &data["running"], &data["left"]),
        (&true.into(), &2.into(), &10.into())
    );
    // Only a file that is written again is loaded again.
    assert!(!page.contains("data-reload") && !page.contains("refresh"));
    model.is_live = true;
    assert!(model.html().contains("<body data-reload=\"2\">"));
    assert_eq!(model.html().matches("http-equiv=\"refresh\"").count(), 1);
    model.is_over();
    let page = model.html();
    assert!(!page.contains("data-reload=") && !page.contains("Running") && !page.contains("as of"));
}

#[test]
fn failures_stand_below_their_reason_with_their_whole_command() {
    let mut model = PageModel::new(facts());
    let long = "x".repeat(1_500);
    for job in 1..=7 {
        let text = format!("./convert {long} {job}.png");
        let said = format!("reading\n./convert: {job}.png: broken");
        run(&mut model, job, AttemptOutcome::Exited(1), (0.0, 1.0), (&text, &said));
    }
    run(&mut model, 8, AttemptOutcome::Signaled(11), (0.0, 1.0), ("y", ""));
    for job in [9, 10] {
        let reason = Some("job 1 [lib] did not succeed");
        model.lasts_until(at(2.0));
        model.settled(job, job, "[app] true", JobOutcome::Skipped, reason);
    }
    model.is_over();
    let page = model.html();
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is not in {page}"));
    let group = "<b class=\"bad\">7 jobs</b> <span>failed · exit 1</span> \
                 <code>./convert: 1.png: broken</code>";
    let skipped = "<b class=\"gone\">2 jobs</b> <span>skipped · job 1 [lib] did not succeed</span>";
    assert!(place(group) < place("SIGSEGV") && place("SIGSEGV") < place(skipped));
    assert!(page.contains(&format!("<p class=\"whole\"><code>./convert {long} 3.png</code></p>")));
    assert!(page.contains("<code>[app] true</code>"));
    let data = data(&page);
    assert_eq!(data["reasons"][0]["jobs"], 7);
    assert_eq!(data["reasons"][2]["state"], "skipped");
}

#[test]
fn a_page_says_how_many_reasons_and_messages_it_leaves_out() {
    let mut model = PageModel::new(facts());
    for job in 1..=250_u64 {
        // A number would be the same reason.
        let said = format!("bad {}", "x".repeat(job as usize));
        run(&mut model, job, AttemptOutcome::Exited(1), (0.0, 1.0), ("y", &said));
        model.note(&format!("note {job}"));
    }
    model.is_over();
    let page = model.html();
    assert!(
        page.contains("<p class=\"note\">50 have other reasons: the page tells 200 apart.</p>")
    );
    assert!(page.contains("<li>230 more messages are left out</li>"), "{page}");
    let data = data(&page);
    assert_eq!((&data["other_reasons"], &data["other_notes"]), (&50.into(), &230.into()));
}

#[test]
fn a_copy_of_many_durations_shares_them() {
    let mut durations = Durations::default();
    (0..20_000_u16).for_each(|number| durations.push(number.into()));
    let copy = durations.clone();
    let is_shared = |(one, other): (&Arc<[f32]>, &Arc<[f32]>)| Arc::ptr_eq(one, other);
    assert!(durations.full.iter().zip(&copy.full).all(is_shared) && copy.full.len() == 4);
    assert!(copy.new.len() < MOST_NEW);
    let all: Vec<f32> = (0..20_000_u16).map(f32::from).collect();
    assert!(copy.all() == all);
}

#[test]
fn the_median_is_that_of_all_attempts() {
    let mut model = PageModel::new(facts());
    assert_eq!(model.median(), None);
    for (job, seconds, median) in
        [(1, 0.5, 0.5), (2, 3.0, 1.75), (3, 0.25, 0.5), (4, 1.0, 0.75), (5, 2.0, 1.0)]
    {
        run(&mut model, job, AttemptOutcome::Exited(0), (0.0, seconds), ("x", ""));
        assert_eq!(model.median(), Some(median), "{job}");
    }
    assert!(model.html().contains("median 1.0 s"));
    assert_eq!(data(&model.html())["median_seconds"], 1.0);
}

#[test]
fn the_page_needs_no_network_and_no_other_file() {
    let mut model = PageModel::new(facts());
    every_event().iter().for_each(|event| model.event(event, at(3.0)));
    let page = model.html();
    let page = page.replace("http-equiv", "");
    for word in ["http", "//", "src=", "url(", "@import", "fetch"] {
        assert!(!page.contains(word), "{word}");
    }
    let data = data(&page);
    assert_eq!(data["states"]["failed"], 1);
    assert_eq!(data["attempts"][0]["end"], "exit 7");
    assert_eq!(data["notes"][0], "the log is on a network filesystem");
    assert!(page.contains("ended early: interrupted"));
    assert!(page.contains("2027-01-15 08:00 UTC"));
}

#[test]
fn hostile_texts_are_inert_and_cut() {
    let hostile = [
        "</script><script>alert(1)</script><!--".to_owned(),
        "\"onmouseover=alert(1) x=' <img src=x onerror=alert(1)> &amp; </title></pre></code>"
            .to_owned(),
        "\0\u{1}\x1b]0;x\u{7}\u{202e}\u{2028}\u{fffd}\r\n".repeat(100),
        "<marquee>".repeat(1 << 20),
    ];
    let facts = BatchFacts { command: hostile.concat(), log: Some(hostile.concat()), ..facts() };
    let mut model = PageModel::new(facts);
    for (job, text) in (1..).zip(&hostile) {
        run(&mut model, job, AttemptOutcome::NotStarted(text.clone()), (1.0, 1.0), (text, text));
        model.event(&Event::Note(text.clone()), at(1.0));
        model.event(&settled(100 + job, JobOutcome::Refused, Some(text)), at(1.0));
    }
    let page = model.html();
    assert!(page.len() < 100_000, "{} bytes", page.len());
    let allowed = |character: char| character == '\n' || !character.is_control();
    assert!(page.chars().all(allowed), "a control character");
    assert_eq!(page.matches("<script").count(), 2);
    assert_eq!(page.matches("</script").count(), 2);
    // In the data a quote follows a backslash.
    let (markup, _) = page.split_once("id=\"data\"").unwrap();
    for text in ["<img", "<marquee", "<!--", "\"onmouseover", "x='"] {
        assert!(!markup.contains(text), "{text}");
    }
    // All that is left of markup is ours.
    assert_eq!(page.matches("</title>").count(), page.matches("<title>").count());
    let data = data(&page);
    assert!(data["attempts"][0]["command"].as_str().unwrap().starts_with("</script><script>"));
}

#[test]
fn a_page_about_many_jobs_is_bounded_and_says_what_it_leaves_out() {
    let mut model = PageModel::new(facts());
    for job in 1..=20_000_u64 {
        let outcome = AttemptOutcome::Exited(i32::from(job % 50 == 0));
        let seconds = (job % 97) as f64 / 100.0;
        run(&mut model, job, outcome, (job as f64 / 10.0, seconds), ("./convert", "bad\n"));
    }
    let page = model.html();
    assert_eq!(page.matches("<rect").count(), MOST_ATTEMPTS);
    assert_eq!(page.matches("<tr id").count(), MOST_ATTEMPTS);
    assert_eq!(page.matches("class=\"failure\"").count(), MOST_FAILURES);
    assert!(page.contains("The lanes show 2000 of 20000 attempts"));
    assert!(page.contains("The table has 2000 of 20000 attempts"));
    assert!(page.contains("200 of 400: the page has at most 200."));
    let data = data(&page);
    assert_eq!(data["other_attempts"], 18_000);
    let failed = |it: &&serde_json::Value| it["is_success"] == false;
    assert_eq!(
        data["attempts"].as_array().unwrap().iter().filter(failed).count(),
        400,
        "all failed ones are kept"
    );
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
}

#[test]
fn a_batch_without_attempts_has_a_page() {
    let mut model = PageModel::new(facts());
    model.is_over();
    let page = model.html();
    assert!(page.contains("<h1>0 ok, 0 failed in 0 s</h1>"));
    assert!(!page.contains("<svg"));
}

#[test]
fn busy_time_is_exact_and_memory_is_bounded_however_long_it_takes() {
    let mut busy = Busy::default();
    let mut all = 0.0;
    for number in 0..20_000 {
        let (start, seconds) = (f64::from(number) * 0.7, f64::from(number % 50) / 10.0);
        busy.add(start, seconds);
        all += seconds;
    }
    busy.add(5.0, f64::INFINITY);
    busy.add(-1.0, 2.0);
    busy.add(f64::NAN, 1.0);
    assert!(busy.busy_seconds.len() <= INTERVALS);
    let sum: f64 = busy.busy_seconds.iter().sum();
    assert!((sum - all).abs() < 1e-3, "{sum} of {all}");
}

#[test]
fn two_jobs_at_once_are_two() {
    let mut busy = Busy::default();
    busy.add(0.0, 1.0);
    busy.add(0.5, 0.5);
    let level = |at: f64| busy.levels().take_while(|(from, _)| *from <= at).last().unwrap().1;
    assert!((level(0.25) - 1.0).abs() < 1e-6);
    assert!((level(0.75) - 2.0).abs() < 1e-6);
}

#[test]
fn each_duration_is_in_its_interval() {
    let mut histogram = Histogram::default();
    for seconds in [0.0, 0.0005, 0.001, 0.0019, 0.3, 0.4, 7.0, 1e9] {
        histogram.add(seconds);
    }
    let filled: Vec<_> = histogram.used().into_iter().filter(|it| it.count > 0).collect();
    let counts: Vec<_> = filled.iter().map(|it| it.count).collect();
    assert_eq!(counts, [2, 2, 2, 1, 1]);
    assert_eq!((filled[1].from, filled[1].to), (0.001, Some(0.002)));
    assert_eq!(filled[4].to, None);
    assert_eq!((histogram.total, histogram.most_seconds), (8, 1e9));
}

#[test]
fn few_durations_have_neighbours() {
    for seconds in [0.0, 1.0, 1e9] {
        let mut histogram = Histogram::default();
        histogram.add(seconds);
        assert!((5..=9).contains(&histogram.used().len()), "{seconds}: {:?}", histogram.used());
    }
    assert_eq!(Histogram::default().used(), []);
}
