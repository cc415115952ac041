//! Measurements, which assert nothing about time. Run one with `--release -- --ignored --nocapture measure`.

use super::*;

const MIB: usize = 1 << 20;

/// Runs jobs that end in another order than that of the input, and returns MB/s and the peak of the bytes held.
fn run(jobs: u64, bytes: usize, stdout: impl Write + Send + 'static) -> (f64, usize) {
    let options = OutputOptions { keep_order: true, ..options(OutputMode::Group) };
    let mut output = Output::new(options, stdout, io::sink(), no_waker()).unwrap();
    let chunk = vec![b'x'; bytes.min(64 << 10)];
    let at_once = 8;
    let before = Instant::now();
    for first in (1..=jobs).step_by(at_once) {
        let some = first..(first + at_once as u64).min(jobs + 1);
        let mut sinks: Vec<_> =
            some.clone().map(|job| output.begin(key(job, 1), info(job))).collect();
        for _ in 0..bytes.div_ceil(chunk.len()) {
            sinks.iter_mut().for_each(|sink| sink.write(Source::Stdout, &chunk));
        }
        drop(sinks);
        for job in some.rev() {
            output.finish(&end_of(key(job, 1)), true);
            output.settle(job);
        }
    }
    let peak = output.peak_memory_bytes();
    output.close().unwrap();
    let seconds = before.elapsed().as_secs_f64();
    (jobs as f64 * bytes as f64 / 1e6 / seconds, peak)
}

#[test]
#[ignore = "a measurement"]
fn measure_1000_jobs_of_a_mebibyte() {
    for _ in 0..5 {
        let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
        let (rate, peak) = run(1000, MIB, null);
        println!("to /dev/null: {rate:.0} MB/s, peak {peak} bytes");
        let (mut reader, writer) = pipewright::pipe(pipewright::PipeOptions::default()).unwrap();
        let reading = std::thread::spawn(move || io::copy(&mut reader, &mut io::sink()).unwrap());
        let (rate, peak) = run(1000, MIB, writer);
        assert_eq!(reading.join().unwrap(), 1000 * MIB as u64);
        println!("to a pipe: {rate:.0} MB/s, peak {peak} bytes");
    }
}

#[test]
#[ignore = "a measurement"]
fn measure_100000_jobs_of_100_bytes() {
    for _ in 0..5 {
        let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
        let before = Instant::now();
        let (_, peak) = run(100_000, 100, null);
        let each = before.elapsed().as_nanos() / 100_000;
        println!("{each} ns a job, peak {peak} bytes");
    }
}

#[cfg(target_os = "linux")]
#[test]
#[ignore = "a measurement"]
fn measure_a_million_waiting_jobs() {
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        status.lines().find(|line| line.starts_with("VmRSS")).unwrap().to_owned()
    };
    let options = OutputOptions { keep_order: true, ..options(OutputMode::Group) };
    let output = Output::new(options, io::sink(), io::sink(), no_waker()).unwrap();
    let (stdout, stderr) = (Printed::default(), Printed::default());
    let mut batch = Batch { output, stdout, stderr, sinks: BTreeMap::new() };
    println!("before: {}", resident());
    batch.begin(1);
    let line = [b'x'; 100];
    for job in 2..=1_000_000 {
        batch.run(job, line);
    }
    println!("a million jobs wait: {}", resident());
    batch.end(1);
    batch.close();
    println!("after: {}", resident());
}
