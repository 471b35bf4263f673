//! Pong in a terminal over encrypted UDP: the server simulates the game, the players send inputs
//! and draw the states that they receive.
//!
//! ```text
//! pong play                          starts a server and a bot as processes, and you play
//! pong play --ticks 300              two bots without a display: all must report the same score
//! pong server 127.0.0.1:7777         by hand: prints its key
//! pong client 127.0.0.1:7777 KEY     by hand
//! ```
//!
//! If stdout is not a terminal, `play` runs 300 ticks with bots.

#![expect(clippy::print_stdout, reason = "a program for people to watch")]

mod court;
mod terminal;

use std::error::Error;
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::net::SocketAddr;
use std::process::{ChildStdout, Command, ExitCode, Stdio};

use clap::Parser;
use court::{Court, Move};
use terminal::Terminal;
use tickwire::{
    AppId, ChannelId, Client, Event, HZ_30, RELIABLE, Server, ServerKey, SessionId, UNRELIABLE,
};
use tickwire_examples::ChildGuard;
use wire::{Reader, Writer};

const APP: AppId = AppId(0x706f_6e67);
/// Maximum ticks to wait for players to join, or to leave.
const PATIENCE: u32 = 300;
/// Ticks of a game without a display.
const TICKS: u32 = 300;

/// Plays pong over encrypted UDP.
#[derive(Parser)]
#[command(arg_required_else_help = true)]
enum Line {
    /// Starts a server and an opponent, and plays against it.
    Play {
        /// Plays this many ticks with two bots and no display.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        ticks: Option<u32>,
    },
    /// Waits for two players and runs a game.
    Server {
        address: SocketAddr,
        /// Ends after this many ticks, whatever the score.
        #[arg(long)]
        ticks: Option<u32>,
    },
    /// Plays on the free side.
    Client {
        address: SocketAddr,
        key: ServerKey,
        /// Lets a bot play, without a display.
        #[arg(long)]
        bot: bool,
    },
}

fn main() -> ExitCode {
    tickwire_examples::end("pong", run())
}

fn run() -> Result<(), Box<dyn Error>> {
    match Line::parse() {
        Line::Play { ticks } => {
            let is_watched = io::stdout().is_terminal() && io::stdin().is_terminal();
            let headless = (!is_watched).then_some(TICKS);
            play(ticks.or(headless))
        }
        Line::Server { address, ticks } => serve(address, ticks),
        Line::Client { address, key, bot } => {
            let screen = (!bot).then(Terminal::open);
            match join(address, key, screen)? {
                Some(points) => println!("{}", tell(points)),
                None => println!("you have left"),
            }
            Ok(())
        }
    }
}

fn tell([left, right]: [u8; 2]) -> String {
    format!("{left} : {right}")
}

/// Starts the other processes, and plays or waits for the bots.
fn play(ticks: Option<u32>) -> Result<(), Box<dyn Error>> {
    let option = ticks.map(|ticks| format!("--ticks={ticks}"));
    let words = ["server", "127.0.0.1:0"]
        .into_iter()
        .chain(option.as_deref());
    // Their error output would overwrite the court.
    let err = || ticks.map_or_else(Stdio::null, |_| Stdio::inherit());
    let (mut server, mut lines) = start(words, err())?;
    let first = lines.next().ok_or("the server said nothing")??;
    let (address, key) = first.split_once(' ').ok_or("the server said no key")?;
    let bot = || start(["client", address, key, "--bot"], err());
    let (mut opponent, mut incoming) = bot()?;
    let mine = if ticks.is_some() {
        let (mut player, mut incoming) = bot()?;
        let points = incoming.next().ok_or("a player said nothing")??;
        player.0.wait()?;
        points
    } else {
        let screen = Some(Terminal::open());
        let Some(points) = join(address.parse()?, key.parse()?, screen)? else {
            // The child processes end with this process.
            println!("pong: you have left");
            return Ok(());
        };
        tell(points)
    };
    let theirs = incoming.next().ok_or("a player said nothing")??;
    let last = lines.next().ok_or("the server did not end well")??;
    opponent.0.wait()?;
    if !server.0.wait()?.success() || mine != theirs || !last.ends_with(&mine) {
        return Err(format!("the score is not agreed on: {last}; {mine}; {theirs}").into());
    }
    println!("pong: {last}, and all agree");
    Ok(())
}

type Lines = io::Lines<BufReader<ChildStdout>>;

fn start<'a>(
    words: impl IntoIterator<Item = &'a str>,
    err: Stdio,
) -> Result<(ChildGuard, Lines), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(words).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(err);
    let mut child = ChildGuard(command.spawn()?);
    let stdout = child.0.stdout.take().ok_or("a process has no output")?;
    Ok((child, BufReader::new(stdout).lines()))
}

/// A player's state on the server.
struct Player {
    session: SessionId,
    /// Number of the newest input. Older ones that arrive later are ignored.
    newest: u32,
    held: Move,
}

fn serve(address: SocketAddr, ticks: Option<u32>) -> Result<(), Box<dyn Error>> {
    let mut server = Server::bind(address, APP)?;
    println!("{} {}", server.address(), server.key());
    let mut players: Vec<Player> = Vec::new();
    let mut waited = 0;
    while players.len() < 2 {
        take(&mut server, &mut players)?;
        waited += 1;
        // When players join by hand, there is no time limit.
        if ticks.is_some() && waited > PATIENCE {
            return Err("no two players came".into());
        }
    }
    let mut court = Court::new();
    let mut bytes = Vec::new();
    while !court.is_won() && ticks.is_none_or(|ticks| court.tick < ticks) {
        take(&mut server, &mut players)?;
        let [left, right] = players.as_slice() else {
            return Err("a player left".into());
        };
        court.play([left.held, right.held]);
        bytes.clear();
        court.encode(&mut Writer::new(&mut bytes));
        tell_all(&mut server, &players, UNRELIABLE, &bytes);
    }
    // The result is sent on the reliable channel, which retransmits it.
    tell_all(&mut server, &players, RELIABLE, &bytes);
    for _ in 0..PATIENCE {
        take(&mut server, &mut players)?;
        if players.is_empty() {
            break;
        }
    }
    println!("{} ticks, {}", court.tick, tell(court.points));
    Ok(())
}

fn tell_all(server: &mut Server, players: &[Player], channel: ChannelId, bytes: &[u8]) {
    for player in players {
        // A lost session is handled in the next tick. A state that does not fit is superseded by
        // the next.
        server.send(player.session, channel, bytes).ok();
    }
}

/// Handles the events of a tick.
fn take(server: &mut Server, players: &mut Vec<Player>) -> Result<(), Box<dyn Error>> {
    for event in server.wait_tick(HZ_30)? {
        match event {
            Event::Connected { session, .. } if players.len() < 2 => {
                let seat = u8::try_from(players.len())?;
                // If the session has ended, its event follows.
                server.send(session, RELIABLE, &[seat]).ok();
                players.push(Player {
                    session,
                    newest: 0,
                    held: Move::Stay,
                });
            }
            // Both sides are taken.
            Event::Connected { session, .. } => {
                server.disconnect(session).ok();
            }
            Event::Message { session, bytes, .. } => {
                let player = players.iter_mut().find(|player| player.session == session);
                if let (Some(player), Some((number, held))) = (player, read_move(&bytes))
                    && number > player.newest
                {
                    player.newest = number;
                    player.held = held;
                }
            }
            Event::Disconnected { session, .. } => {
                players.retain(|player| player.session != session);
            }
            Event::Unreachable { .. } | Event::Settled { .. } | _ => {}
        }
    }
    Ok(())
}

/// Parses a player's input: an increasing number and a move.
fn read_move(bytes: &[u8]) -> Option<(u32, Move)> {
    let mut reader = Reader::new(bytes);
    let number = reader.u32().ok()?;
    Some((number, Move::from_byte(reader.u8().ok()?)?))
}

/// Plays until the server sends the result. Returns the points, or `None` if the player left.
fn join(
    address: SocketAddr,
    key: ServerKey,
    mut screen: Option<Terminal>,
) -> Result<Option<[u8; 2]>, Box<dyn Error>> {
    let mut client = Client::connect(address, APP, key)?;
    let mut court = Court::new();
    let mut seat: Option<usize> = None;
    let mut points = None;
    let mut has_left = false;
    for number in 1.. {
        for event in client.wait_tick(HZ_30)? {
            match event {
                Event::Message { channel, bytes, .. } if channel == RELIABLE => {
                    if let [own] = *bytes {
                        seat = Some(own.into());
                    } else {
                        points = Some(Court::decode(&mut Reader::new(&bytes))?.points);
                        client.disconnect()?;
                    }
                }
                Event::Message { bytes, .. } => {
                    let reported = Court::decode(&mut Reader::new(&bytes))?;
                    // Datagrams may arrive out of order.
                    if reported.tick > court.tick {
                        court = reported;
                    }
                }
                Event::Unreachable { failure } => return Err(failure.to_string().into()),
                Event::Disconnected { .. } if has_left || points.is_some() => return Ok(points),
                Event::Disconnected { reason, .. } => return Err(reason.to_string().into()),
                Event::Connected { .. } | Event::Settled { .. } | _ => {}
            }
        }
        if let (Some(seat), None, false) = (seat, points, has_left) {
            let Some(held) = look(screen.as_mut(), &court, seat) else {
                has_left = true;
                client.disconnect()?;
                continue;
            };
            let mut bytes = Vec::new();
            let mut out = Writer::new(&mut bytes);
            out.u32(number);
            out.u8(held.to_byte());
            // An input that does not fit is superseded by the next.
            client.send(UNRELIABLE, &bytes).ok();
        }
    }
    Err("the game is endless".into())
}

/// Draws a state and returns the player's input, or `None` if the player quits.
fn look(screen: Option<&mut Terminal>, court: &Court, seat: usize) -> Option<Move> {
    let Some(terminal) = screen else {
        return Some(court.bot(seat));
    };
    terminal::draw(court, seat);
    terminal.held()
}
