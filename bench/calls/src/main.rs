//! One figure of a pool, for pairs of two builds (`bench/pairs.sh`): `calls FIGURE COUNT` prints the seconds of `COUNT`
//! starts of a worker with its first call (`start`), calls of 64 bytes (`call`) or of 1 MiB (`mib`), typed calls
//! (`typed`), items to a worker (`to-worker`) or from it (`from-worker`), or calls with as many MiB there and back as
//! the figure says, by `Pool::call` (`raw-10`) and by a typed service (`bytes-10`); `bytes-by-raw-10` is the ratio of
//! the two, the median of COUNT interleaved pairs. The worker is this program.

use std::error::Error;
use std::time::Instant;

use pipewright_ipc::service::{Input, Output};
use pipewright_ipc::{Command, Options, Pool, PoolOptions, Request, service, worker};

const IS_TYPED: &str = "CALLS_TYPED";

#[service(version = 1)]
pub(crate) trait Figures {
    /// Adds two numbers.
    #[idempotent]
    fn add(&self, one: u64, other: u64) -> u64;

    /// Returns the bytes.
    fn echo(&self, bytes: Vec<u8>) -> Vec<u8>;

    /// Adds items up.
    fn add_up(&self, items: &mut Input<'_, u64>) -> u64;

    /// Sends the numbers below `count`.
    fn count_up(&self, count: u64, items: &mut Output<'_, u64>) -> u64;
}

struct Worker;

impl Figures for Worker {
    fn add(&self, one: u64, other: u64) -> u64 {
        one + other
    }

    fn echo(&self, bytes: Vec<u8>) -> Vec<u8> {
        bytes
    }

    fn add_up(&self, items: &mut Input<'_, u64>) -> u64 {
        let mut sum = 0;
        while let Ok(Some(item)) = items.next() {
            sum += item;
        }
        sum
    }

    fn count_up(&self, count: u64, items: &mut Output<'_, u64>) -> u64 {
        (0..count).take_while(|number| items.send(number).is_ok()).count() as u64
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    if worker::is_worker() {
        let options = Options::default();
        return Ok(match std::env::var_os(IS_TYPED) {
            Some(_) => Worker.serve(&options),
            None => worker::serve_calls(&options, |call| Ok(call.take_request())),
        }?);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [figure, count] = &arguments[..] else { return Err("usage: calls FIGURE COUNT".into()) };
    println!("{}", seconds(figure, count.parse()?)?);
    Ok(())
}

fn seconds(figure: &str, count: u64) -> Result<f64, Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let options = PoolOptions { min_workers: 1, max_workers: 1, ..PoolOptions::default() };
    let pool = || Pool::new(Command::new(&program), options.clone());
    let client = || {
        let mut command = Command::new(&program);
        command.env(IS_TYPED, "1");
        FiguresClient::new(command, options.clone())
    };
    let began;
    match figure {
        "start" => {
            began = Instant::now();
            for _ in 0..count {
                let pool = pool()?;
                pool.call(Request::new(vec![1; 8]))?;
                pool.shut_down();
            }
        }
        "call" | "mib" => {
            let body = vec![7; if figure == "call" { 64 } else { 1 << 20 }];
            let pool = pool()?;
            pool.call(Request::new(body.clone()))?;
            began = Instant::now();
            for _ in 0..count {
                pool.call(Request::new(body.clone()))?;
            }
        }
        "typed" => {
            let client = client()?;
            client.add(1, 2)?;
            began = Instant::now();
            for number in 0..count {
                client.add(number, 2)?;
            }
        }
        "to-worker" => {
            let client = client()?;
            client.add(1, 2)?;
            began = Instant::now();
            let (mut items, sum) = client.add_up()?;
            for number in 0..count {
                items.send(&number)?;
            }
            items.finish();
            sum.wait()?;
        }
        "from-worker" => {
            let client = client()?;
            client.add(1, 2)?;
            began = Instant::now();
            let mut items = client.count_up(count)?;
            while items.next()?.is_some() {}
            items.finish()?;
        }
        _ => {
            let (how, mib) = figure.rsplit_once('-').ok_or("no such figure")?;
            let (pool, client, bytes) = (pool()?, client()?, mib.parse::<usize>()? << 20);
            let raw = || -> Result<f64, Box<dyn Error>> {
                let body = vec![7; bytes];
                let began = Instant::now();
                let reply = pool.call(Request::new(body))?;
                assert_eq!(reply.len(), bytes);
                Ok(began.elapsed().as_secs_f64())
            };
            let typed = || -> Result<f64, Box<dyn Error>> {
                let body = vec![7; bytes];
                let began = Instant::now();
                assert_eq!(client.echo(body)?.len(), bytes);
                Ok(began.elapsed().as_secs_f64())
            };
            (raw()?, typed()?);
            return match how {
                "raw" => (0..count).map(|_| raw()).sum(),
                "bytes" => (0..count).map(|_| typed()).sum(),
                "bytes-by-raw" => {
                    let pairs = (0..count).map(|pair| match pair % 2 {
                        0 => raw().and_then(|raw| Ok(typed()? / raw)),
                        _ => typed().and_then(|typed| Ok(typed / raw()?)),
                    });
                    let mut ratios = pairs.collect::<Result<Vec<_>, _>>()?;
                    ratios.sort_by(f64::total_cmp);
                    ratios.get(ratios.len() / 2).copied().ok_or_else(|| "no pairs".into())
                }
                _ => Err(format!("no figure is called {figure}").into()),
            };
        }
    }
    Ok(began.elapsed().as_secs_f64())
}
