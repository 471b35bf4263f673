//! Sends data through one TCP connection over the mesh, in both directions at once.

use std::fs;
use std::io::{self, Read, Write};
use std::iter;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use daemon::relay::sandbox::{NodeProcess, Sandbox};
use daemon::relay::{FileGame, FileRole, Mode, Protocol};

/// Options of the run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// MiB to send in each direction.
    #[arg(long, default_value_t = 1_024)]
    mib: u32,
    /// Number of relays on the path; 0 is the direct path between entry and exit.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=3))]
    relays: u8,
    /// One-way delay between entry and exit in total, in milliseconds.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=200))]
    delay_ms: u64,
    /// Keep the default rate limit of a label, 16 MiB/s, instead of none.
    #[arg(long)]
    default_rate: bool,
}

/// Sends the data in each direction. Returns whether all of it arrived intact.
pub(crate) fn run(options: &Options) -> io::Result<bool> {
    let (mib, relays) = (options.mib, usize::from(options.relays));
    // In path order.
    let relay_names = RELAYS.into_iter().take(relays);
    let names = ["entry"].into_iter().chain(relay_names).chain(["exit"]);
    let roles = [FileRole::Entry].into_iter();
    let roles = roles.chain(iter::repeat_n(FileRole::Relay, relays));
    let all: Vec<_> = names.zip(roles.chain([FileRole::Exit])).collect();
    let mut sandbox = Sandbox::new(&all)?;
    let exit = all.len() - 1;
    for one in 0..all.len() {
        for other in one + 2..all.len() {
            sandbox.link(one, other, BESIDE_MS + 2 * options.delay_ms);
        }
    }
    // The delay is divided equally among the hops; the first takes the remainder.
    let hops = u64::try_from(exit).unwrap_or(1);
    for one in 0..exit {
        let rest = if one == 0 { options.delay_ms % hops } else { 0 };
        if options.delay_ms > 0 {
            sandbox.link(one, one + 1, options.delay_ms / hops + rest);
        }
    }
    let server = TcpListener::bind(SocketAddr::new(sandbox.host(SERVER), 0))?;
    let entry = SocketAddr::new(sandbox.host(1), PORT);
    carry(&mut sandbox, (entry, exit), server.local_addr()?);
    if !options.default_rate {
        for node in 0..=exit {
            if let Some(config) = sandbox.config_mut(node) {
                config.limits.flow_bytes_per_second = Some(u32::MAX);
            }
        }
    }
    let mut nodes = Vec::new();
    for node in 0..all.len() {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["node", "--config"]);
        nodes.push(sandbox.start(node, command)?);
    }
    let (player, server) = connect(entry, &server)?;
    // Until the relay path has been measured as the better one.
    thread::sleep(SETTLE);
    let blocks = usize::try_from(mib).unwrap_or(0) * BLOCKS_A_MIB;
    let (before, began) = (cpu(&nodes)?, Instant::now());
    let is_good = exchange(&player, &server, blocks);
    let (after, took) = (cpu(&nodes)?, began.elapsed());
    let bytes = f64::from(mib) * 2.0 * MIB;
    let each = before
        .iter()
        .zip(&after)
        .map(|(before, after)| after - before);
    let each: Vec<String> = each
        .zip(&all)
        .map(|(spent, (name, _))| format!("{name} {:.1} ns", spent * 1e9 / bytes))
        .collect();
    println!(
        "bulk: {}; {mib} MiB each way over {relays} relays, {} ms one way, in {:.1} s, {:.1} MB/s in both together, {:.0} Mbit/s in each; CPU for each byte: {}",
        if is_good { "intact" } else { "BROKEN" },
        options.delay_ms,
        took.as_secs_f64(),
        bytes / 1e6 / took.as_secs_f64(),
        bytes * 4.0 / 1e6 / took.as_secs_f64(),
        each.join(", "),
    );
    Ok(is_good)
}

fn carry(sandbox: &mut Sandbox, (entry, exit): (SocketAddr, usize), server: SocketAddr) {
    let game = FileGame {
        name: "bulk".to_owned(),
        protocol: Protocol::Tcp,
        mode: Mode::Shadow,
        listen: vec![entry],
        exits: sandbox.id(exit).into_iter().collect(),
        server: None,
        entries: None,
        proxy_header: None,
    };
    if let Some(config) = sandbox.config_mut(ENTRY) {
        config.games.push(game.clone());
    }
    if let Some(config) = sandbox.config_mut(exit) {
        config.games.push(FileGame {
            listen: Vec::new(),
            exits: Vec::new(),
            server: Some(server),
            ..game
        });
    }
}

/// Connects through the mesh and retries until a path exists.
fn connect(entry: SocketAddr, server: &TcpListener) -> io::Result<(TcpStream, TcpStream)> {
    server.set_nonblocking(true)?;
    for number in 0..TRIES {
        thread::sleep(PAUSE);
        let Ok(mut player) = TcpStream::connect(entry) else {
            continue;
        };
        // Until a path exists, the entry resets connections.
        if player.write_all(&number.to_be_bytes()).is_err() {
            continue;
        }
        thread::sleep(PAUSE);
        // An abandoned earlier attempt may arrive first.
        while let Ok((mut server, _)) = server.accept() {
            server.set_nonblocking(false)?;
            let mut reported = [0; 4];
            if server.read_exact(&mut reported).is_ok() && reported == number.to_be_bytes() {
                return Ok((player, server));
            }
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Sends the blocks in each direction. Returns whether they arrived intact.
fn exchange(player: &TcpStream, server: &TcpStream, blocks: usize) -> bool {
    thread::scope(|scope| {
        for from in [player, server] {
            scope.spawn(move || send(from, blocks));
        }
        let readers = [player, server].map(|to| scope.spawn(move || receive(to, blocks)));
        let came = readers.map(|reader| matches!(reader.join(), Ok(Ok(true))));
        came == [true; 2]
    })
}

fn send(mut to: &TcpStream, blocks: usize) -> io::Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    for number in 0..blocks {
        fill(&mut block, number);
        to.write_all(&block)?;
    }
    to.shutdown(Shutdown::Write)
}

fn receive(mut from: &TcpStream, blocks: usize) -> io::Result<bool> {
    let (mut block, mut expected) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    for number in 0..blocks {
        fill(&mut expected, number);
        from.read_exact(&mut block)?;
        if block != expected {
            return Ok(false);
        }
    }
    Ok(from.read(&mut block)? == 0)
}

/// Fills a block so that no eight bytes repeat in any block.
fn fill(block: &mut [u8], number: usize) {
    let begin = number * BLOCK_BYTES;
    for (at, word) in (begin..).step_by(8).zip(block.chunks_exact_mut(8)) {
        word.copy_from_slice(&at.to_le_bytes());
    }
}

/// Returns each node's CPU time in seconds; proc(5).
fn cpu(nodes: &[NodeProcess]) -> io::Result<Vec<f64>> {
    let of = |node: &NodeProcess| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", node.id()))?;
        // After the name, which may contain any byte, user and system time are fields 12 and 13.
        let (_, fields) = stat.rsplit_once(')').unwrap_or_default();
        let fields = fields.split_whitespace().skip(11).take(2);
        let ticks = fields.filter_map(|field| field.parse::<f64>().ok());
        Ok(ticks.sum::<f64>() / TICKS_PER_SECOND)
    };
    nodes.iter().map(of).collect()
}

const RELAYS: [&str; 3] = ["relay-1", "relay-2", "relay-3"];
/// The entry's index in the nodes; the exit is the last.
const ENTRY: usize = 0;
/// Host number of the game server; nodes have 1 to 5.
const SERVER: u8 = 6;
const PORT: u16 = 7_778;
/// One-way delay between nodes that are not adjacent, so that packets pass all relays.
const BESIDE_MS: u64 = 40;
const BLOCK_BYTES: usize = 64 << 10;
const BLOCKS_A_MIB: usize = 16;
const MIB: f64 = 1_048_576.0;
const SETTLE: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(200);
const TRIES: u32 = 100;
/// `USER_HZ`, which is 100 on all current Linux systems.
const TICKS_PER_SECOND: f64 = 100.0;
