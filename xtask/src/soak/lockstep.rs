//! A match of many processes, which must end with equal states.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::failure::Failure;
use crate::process;

/// Size and duration of the match.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Players, each in a separate process, in addition to the server.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(2..=64))]
    players: u16,
    /// Duration of the match in minutes.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
    minutes: u32,
    /// Loss in percent of datagrams, each direction.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=50))]
    loss: u32,
}

/// Tick rate of the example, per second.
const TICK_RATE: u32 = 30;

/// Time allowed beyond the match: handshakes of 64 players, the start, the last ticks.
const SPARE: Duration = Duration::from_secs(120);

/// Plays one match with the given number of processes, on the loopback address and over encrypted
/// sessions, and compares the states that they print once a second. Processes are killed if they
/// run more than two minutes over time, or if this command is interrupted or killed.
pub(super) fn run(options: &Options) -> Result<(), Failure> {
    let ticks = options.minutes.saturating_mul(60).saturating_mul(TICK_RATE);
    let mut command = super::example("lockstep")?;
    command.arg("run");
    command.arg(format!("--players={}", options.players));
    command.arg(format!("--ticks={ticks}"));
    command.arg(format!("--loss={}", options.loss));
    let mut states = States::default();
    let limit = Duration::from_secs(u64::from(options.minutes) * 60) + SPARE;
    let ended = process::run_bounded(&mut command, limit, |line| states.take(line));
    if ended.is_err() {
        // The processes' other output shows why the match failed.
        for line in &states.others {
            println!("soak: {line}");
        }
        if let Err(failure) = states.verdict(options.players, ticks) {
            println!("{failure}");
        }
    }
    ended?;
    println!("{}", states.verdict(options.players, ticks)?);
    Ok(())
}

/// State hashes by tick, and how many processes printed each.
#[derive(Debug, Default)]
struct States {
    by_tick: BTreeMap<u32, BTreeMap<String, u16>>,
    /// Lines without a tick's hash.
    others: Vec<String>,
}

/// Maximum number of such lines kept for the error message.
const OTHERS_MAX: usize = 20;

impl States {
    /// Parses `tick 30  hash 0123`, with or without the prefix `player 3: `.
    fn take(&mut self, line: &str) {
        let said = line.split_once(": ").map_or(line, |(_, said)| said);
        let mut words = said.split_whitespace();
        let (tick, hash) = match (words.next(), words.next(), words.next(), words.next()) {
            (Some("tick"), Some(tick), Some("hash"), Some(hash)) => (tick.parse().ok(), hash),
            _ => (None, ""),
        };
        let Some(tick) = tick else {
            if self.others.len() < OTHERS_MAX {
                self.others.push(line.to_owned());
            }
            return;
        };
        let count = self.by_tick.entry(tick).or_default();
        let count = count.entry(hash.to_owned()).or_default();
        *count = count.saturating_add(1);
    }

    /// Checks that the server and every player printed the same hash for each second.
    fn verdict(&self, players: u16, ticks: u32) -> Result<String, Failure> {
        let everyone = players.saturating_add(1);
        let fail = |why: String| Err(Failure::Check(format!("soak: {why}")));
        for (tick, hashes) in &self.by_tick {
            if hashes.len() > 1 {
                return fail(format!("states of tick {tick} differ: {hashes:?}"));
            }
        }
        let is_whole = |hashes: &BTreeMap<String, u16>| hashes.values().sum::<u16>() == everyone;
        let whole = self.by_tick.iter().filter(|(_, hashes)| is_whole(hashes));
        let Some((last, hashes)) = whole.clone().next_back() else {
            return fail(format!("no tick was printed by all: {:?}", self.others));
        };
        if last.saturating_add(TICK_RATE) < ticks {
            return fail(format!(
                "tick {last} of {ticks} was the last that all printed"
            ));
        }
        let hash = hashes.keys().next().map_or("", String::as_str);
        Ok(format!(
            "soak: {players} players and a server, {everyone} processes; {} ticks compared, all \
             equal; tick {last} has hash {hash}",
            whole.count()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(lines: &[&str]) -> States {
        let mut states = States::default();
        for line in lines {
            states.take(line);
        }
        states
    }

    #[test]
    fn equal_states_pass() {
        let states = states(&[
            "127.0.0.1:5 abcd",
            "tick    0  hash 00aa",
            "player 1: tick    0  hash 00aa",
            "player 0: tick    0  hash 00aa",
            "player 0: tick   30  hash 00bb",
        ]);
        let said = states.verdict(2, 30).unwrap();
        assert!(
            said.contains("1 ticks compared, all equal; tick 0 has hash 00aa"),
            "{said}"
        );
        assert!(states.verdict(2, 31).is_err(), "the match ended early");
        assert!(states.verdict(3, 30).is_err(), "somebody is missing");
    }

    #[test]
    fn one_different_state_fails() {
        let lines = ["tick 0 hash 00aa", "player 0: tick 0 hash 00ab"];
        let said = states(&lines).verdict(1, 30).unwrap_err().to_string();
        assert!(said.contains("states of tick 0 differ"), "{said}");
    }
}
