//! The cases: their tables and rows.

/// One row of a table: a peer and the arguments that run it.
pub(crate) struct Row {
    pub(crate) label: &'static str,
    /// Arguments of the C program, or of this one (`cell ...`, `pool ...`, `peer ...`), or `python ...`.
    pub(crate) arguments: String,
}

/// One table.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    /// Bytes of one message, if a rate makes sense.
    pub(crate) bytes: Option<u64>,
    pub(crate) rows: Vec<Row>,
}

fn row(label: &'static str, arguments: String) -> Row {
    Row { label, arguments }
}

/// Returns the rows of other libraries, or none if they were not built.
fn peers(rows: Vec<Row>) -> Vec<Row> {
    if cfg!(feature = "peers") { rows } else { Vec::new() }
}

/// Compares one way, copied out and leased, with a ring, a socket and a pipe.
fn one_way(name: &'static str, size: u64, count: u64) -> Case {
    let slow = count / 4;
    let others = peers(vec![
        row("iceoryx2", format!("peer iceoryx2 oneway copied {size} {count}")),
        row("iceoryx2, a look at it", format!("peer iceoryx2 oneway seen {size} {count}")),
        row("ipc-channel", format!("peer ipc-channel oneway seen {size} {slow}")),
        row("ipc-channel, memory", format!("peer ipc-channel-memory oneway seen {size} {slow}")),
        row("Python, Pipe", format!("python oneway {size} {slow}")),
    ]);
    let mut own = vec![
        row("C ring", format!("ring oneway {size} {count}")),
        row("pipewright", format!("cell oneway copied {size} {count}")),
        row("pipewright, written in place", format!("cell oneway loaned {size} {count}")),
        row("pipewright, made in pieces", format!("cell oneway filled {size} {count}")),
        row("pipewright, a look at it", format!("cell oneway peeked {size} {count}")),
        row("pipewright, without shared memory", format!("cell oneway inline {size} {slow}")),
        row("C socketpair", format!("unix oneway {size} {slow}")),
        row("C pipe", format!("pipe oneway {size} {slow}")),
    ];
    // Shorter messages have that room in any ring.
    if size >= 1 << 20 {
        let wide = format!("cell oneway loaned-wide {size} {count}");
        own.insert(3, row("pipewright, written in place, a ring of four messages", wide));
    }
    Case {
        name,
        description: "one way; every row copies the message out, except those with \"a look at it\"",
        bytes: Some(size),
        rows: own.into_iter().chain(others).collect(),
    }
}

fn every_byte(name: &'static str, size: u64, count: u64) -> Case {
    Case {
        name,
        description: "one way, every byte is read",
        bytes: Some(size),
        rows: vec![
            row("C ring", format!("ring sum {size} {count}")),
            row("pipewright, copied out", format!("cell sum copied {size} {count}")),
            row("pipewright, read in place", format!("cell sum folded {size} {count}")),
            row("pipewright, leased in chunks", format!("cell sum chunks {size} {count}")),
            row("C socketpair", format!("unix sum {size} {}", count / 4)),
        ]
        .into_iter()
        .chain(peers(vec![row("iceoryx2", format!("peer iceoryx2 sum seen {size} {count}"))]))
        .collect(),
    }
}

fn round_trip(name: &'static str, size: u64, count: u64) -> Case {
    let others = peers(vec![
        row(
            "iceoryx2, polling, a look at the answer",
            format!("peer iceoryx2 round seen {size} {count}"),
        ),
        row("ipc-channel", format!("peer ipc-channel round copied {size} {count}")),
        row("ipc-channel, memory", format!("peer ipc-channel-memory round copied {size} {count}")),
        row("Python, Pipe", format!("python round {size} {count}")),
    ]);
    Case {
        name,
        description: "round trip",
        bytes: None,
        rows: vec![
            row("C ring", format!("ring round {size} {count}")),
            row("pipewright", format!("cell round copied {size} {count}")),
            row("pipewright, a look at the answer", format!("cell round seen {size} {count}")),
            row("pipewright, without spinning", format!("cell round sleeping {size} {count}")),
            row("pipewright, without shared memory", format!("cell round inline {size} {count}")),
            row("C socketpair", format!("unix round {size} {count}")),
        ]
        .into_iter()
        .chain(others)
        .collect(),
    }
}

/// Compares calls of a pool with the same requests over a channel to the same worker.
fn calls(name: &'static str, size: u64, count: u64) -> Case {
    let ways = [
        ("Channel", "channel"),
        ("Pool::call", "pool"),
        ("Pool::begin and wait", "pool-begun"),
        ("Channel, without spinning", "channel-sleeping"),
        ("Pool::call, without spinning", "pool-sleeping"),
    ];
    let rows = ways.map(|(label, variant)| row(label, format!("pool {variant} {size} {count}")));
    Case { name, description: "a request and its reply", bytes: None, rows: rows.into() }
}

/// Compares workers in other languages with one in Rust.
fn clients(name: &'static str, size: u64, count: u64) -> Case {
    let languages = [
        ("Rust", "rust"),
        ("C", "c"),
        ("Python", "python"),
        ("Rust, without shared memory", "rust-inline"),
        ("C, without shared memory", "c-inline"),
        ("Python, without shared memory", "python-inline"),
        ("Node, without shared memory", "node-inline"),
    ];
    let rows =
        languages.map(|(label, language)| row(label, format!("client {language} {size} {count}")));
    Case { name, description: "round trip to a worker that echoes", bytes: None, rows: rows.into() }
}

/// Measures a worker from its start to its end, with one request; with and without the pages of its rings prefaulted.
fn starts(count: u64) -> Case {
    let ways = [
        ("Channel", "start"),
        ("Channel, prefault off on both sides", "start-lazy"),
        ("Channel, without shared memory", "start-inline"),
    ];
    let rows = ways.map(|(label, variant)| row(label, format!("pool {variant} 64 {count}")));
    Case {
        name: "start",
        description: "a worker from its start to its end",
        bytes: None,
        rows: rows.into(),
    }
}

/// Returns all tables.
pub(crate) fn all(quick: bool) -> Vec<Case> {
    let many = |count: u64| if quick { count / 20 + 20 } else { count };
    vec![
        one_way("100", 100, many(1_000_000)),
        one_way("8k", 8 << 10, many(200_000)),
        one_way("64k", 64 << 10, many(40_000)),
        one_way("1m", 1 << 20, many(2_500)),
        one_way("16m", 16 << 20, many(160)),
        every_byte("sum-64k", 64 << 10, many(40_000)),
        every_byte("sum-1m", 1 << 20, many(2_500)),
        round_trip("round-64", 64, many(60_000)),
        round_trip("round-64k", 64 << 10, many(15_000)),
        round_trip("round-1m", 1 << 20, many(1_500)),
        round_trip("round-16m", 16 << 20, many(100)),
        calls("call-64", 64, many(30_000)),
        calls("call-1m", 1 << 20, many(1_500)),
        clients("client-64", 64, many(20_000)),
        clients("client-64k", 64 << 10, many(10_000)),
        clients("client-1m", 1 << 20, many(1_000)),
        starts(many(300)),
        Case {
            name: "progressive",
            description: "round trip of 1 MiB, a ring of 4 MiB",
            bytes: None,
            rows: vec![
                row("copied whole, then sent", format!("cell round whole 1048576 {}", many(1_500))),
                row("pipewright", format!("cell round steps 1048576 {}", many(1_500))),
            ],
        },
        Case {
            name: "small",
            description: "one way, messages of 100 bytes in batches of 64 KiB",
            bytes: None,
            rows: vec![
                row("C socketpair, batched", format!("unix batch 100 {}", many(4_000_000))),
                row("pipewright", format!("cell batch copied 100 {}", many(4_000_000))),
                row(
                    "pipewright, without shared memory",
                    format!("cell batch inline 100 {}", many(4_000_000)),
                ),
            ],
        },
        Case {
            name: "build",
            description: "5,000 packets, 434 MB; the time per packet",
            bytes: Some(86_784),
            rows: vec![
                row("C ring", "ring build 86784 5000".to_owned()),
                row("pipewright", "cell build copied 86784 5000".to_owned()),
                row("C socketpair", "unix build 86784 5000".to_owned()),
            ],
        },
        Case {
            name: "build-back",
            description: "1,664 packets, 120 MB; the time per packet",
            bytes: Some(72_116),
            rows: vec![
                row("C ring", "ring build 72116 1664".to_owned()),
                row("pipewright", "cell build copied 72116 1664".to_owned()),
                row("C socketpair", "unix build 72116 1664".to_owned()),
            ],
        },
    ]
}
