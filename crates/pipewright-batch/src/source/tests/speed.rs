//! The speed of the sources. Prints times, and asserts none:
//! `cargo test --release -p pipewright-batch --lib -- --ignored --nocapture speed`.

use std::time::Instant;

use super::*;
use crate::job::Identities;

const COUNT: usize = 1_000_000;

fn measure(name: &str, input_bytes: usize, jobs: Jobs) {
    let begin = Instant::now();
    let count = jobs.filter(Result::is_ok).count();
    let seconds = begin.elapsed().as_secs_f64();
    assert_eq!(count, COUNT);
    let rate = input_bytes as f64 / seconds / 1e6;
    println!("{name}: {COUNT} jobs of {input_bytes} bytes in {seconds:.3} s, {rate:.0} MB/s");
}

#[test]
#[ignore = "measures"]
fn a_million_jobs() {
    let input = |line: fn(usize) -> String| (0..COUNT).map(line).collect::<String>();
    let lines = input(|n| format!("/data/photos/2024/IMG_{n:07}.jpg\n"));
    let words = ["convert", "{}", "-resize", "50%", "out/{/.}-{#}.png"];
    measure("lines with a template", lines.len(), source(&lines).lines(template(&words)));
    measure("commands", lines.len(), source(&lines).commands());
    measure("shell lines", lines.len(), source(&lines).shell_lines());
    let csv = format!("id,file\n{}", input(|n| format!("{n},\"IMG_{n:07}.jpg\"\n")));
    measure("CSV", csv.len(), source(&csv).csv(["convert", "{file}", "{id}.png"]));
    let json = input(|n| format!("{{\"argv\":[\"convert\",\"IMG_{n:07}.jpg\"],\"cpus\":2}}\n"));
    measure("JSON lines", json.len(), source(&json).json_lines());

    let begin = Instant::now();
    let mut identities = Identities::new();
    for job in source(&lines).lines(template(&words)).flatten() {
        std::hint::black_box(identities.next_id(&job));
    }
    println!("lines and identities: {:.3} s", begin.elapsed().as_secs_f64());
    let begin = Instant::now();
    for job in source(&lines).lines(template(&words)).flatten() {
        std::hint::black_box(job.argv(1).unwrap());
    }
    println!("lines and words: {:.3} s", begin.elapsed().as_secs_f64());
}
