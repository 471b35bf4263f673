//! The cases: inputs, stacks and network conditions.

use core::time::Duration;

use netsim::Chance;

use crate::conditions::{FILES, NetworkConditions};
use crate::race::POLL;
use crate::stack::{DELAY, Setup, WINDOW};

/// A match, and the stacks that run it.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Name in the report: `p8`, or `p8/lossy` if it differs in more than the number of players.
    pub name: String,
    /// The players' inputs.
    pub inputs: Inputs,
    /// The stacks that run it.
    pub field: Field,
    /// All other settings.
    pub setup: Setup,
}

/// Kind of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// [`Pad`](crate::play::Pad).
    Pad,
    /// [`Stick`](crate::play::Stick).
    Stick,
    /// [`Burst`](crate::play::Burst).
    Burst,
}

/// The stacks that run a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// All stacks.
    All,
    /// Stacks without a server.
    Equals,
    /// Only Tickwire's mesh.
    Mesh,
    /// Only the stack with a server.
    Server,
}

const LATENCY: Duration = Duration::from_millis(50);
const JITTER: Duration = Duration::from_millis(10);

/// The usual network: 50 ms one way, which is 3 frames, and 2 % loss.
#[must_use]
pub const fn usual() -> NetworkConditions {
    NetworkConditions::steady(LATENCY, Chance::percent(2))
}

/// A match of `players` in `conditions`.
#[must_use]
pub const fn setup(players: usize, conditions: NetworkConditions) -> Setup {
    Setup {
        players,
        delay: DELAY,
        window: WINDOW,
        ahead: 0,
        commits: false,
        conditions,
        turn: POLL,
        diverges: None,
        seed: 1,
    }
}

impl Case {
    fn new(players: usize, name: &str, conditions: NetworkConditions) -> Self {
        let name = match name {
            "" => format!("p{players}"),
            _ => format!("p{players}/{name}"),
        };
        Self {
            name,
            inputs: Inputs::Pad,
            field: Field::All,
            setup: setup(players, conditions),
        }
    }

    const fn with_inputs(mut self, inputs: Inputs) -> Self {
        self.inputs = inputs;
        self
    }

    const fn of(mut self, field: Field) -> Self {
        self.field = field;
        self
    }

    /// Lockstep without prediction. Every input is delayed by `delay` frames.
    fn lockstep(players: usize, name: &str, delay: u32, conditions: NetworkConditions) -> Self {
        let name = format!("lockstep-{name}d{delay}");
        let mut case = Self::new(players, &name, conditions).of(Field::Equals);
        case.setup.delay = delay;
        case.setup.window = 0;
        case
    }
}

/// Returns the matches for the CPU time measurement.
#[must_use]
pub fn bare() -> Vec<Case> {
    let players = [2, 4, 8, 16];
    players.map(|it| Case::new(it, "", usual())).to_vec()
}

/// Returns a match with so many players that it requires a server.
#[must_use]
pub fn many_players() -> Case {
    Case::new(64, "", usual()).of(Field::Server)
}

/// Returns a server match in which clients predict as many ticks as peer-to-peer stacks do.
///
/// # Panics
///
/// Never: the window is small.
#[must_use]
pub fn ahead() -> Case {
    let mut case = Case::new(8, "client-window", usual()).of(Field::Server);
    case.setup.ahead = u8::try_from(WINDOW).expect("a small window");
    case
}

/// Lockstep of four players with commitments to inputs before these are revealed, and the same
/// without commitments. The delay covers the one-way delay twice, two frames, and two consecutive
/// losses.
#[must_use]
pub fn committed() -> [Case; 2] {
    let without = Case::lockstep(4, "loss2-", 10, usual());
    let mut with = Case::lockstep(4, "committed-", 10, usual()).of(Field::Mesh);
    with.setup.commits = true;
    [with, without]
}

/// Returns the matches that are observed for a minute.
#[must_use]
pub fn watched() -> Vec<Case> {
    let mut cases = bare();
    cases.push(many_players());
    cases.push(ahead());
    let far = NetworkConditions::steady(2 * LATENCY, Chance::percent(2));
    cases.push(Case::new(8, "stick", usual()).with_inputs(Inputs::Stick));
    cases.push(Case::new(8, "stick-100", far).with_inputs(Inputs::Stick));
    cases.push(Case::new(8, "burst", usual()).with_inputs(Inputs::Burst));
    for (name, text) in FILES {
        let conditions = NetworkConditions::read(text).expect("a file of ours");
        for players in [4, 8] {
            let case = Case::new(players, name, conditions);
            // Only a server can be halfway between the players.
            let field = if name == "halfway" {
                Field::Server
            } else {
                Field::All
            };
            cases.push(case.of(field));
        }
    }
    let [two, five] = [2, 5].map(|it| NetworkConditions::steady(LATENCY, Chance::percent(it)));
    let [two, five] = [two, five].map(|it| it.with_jitter(JITTER));
    let calm = NetworkConditions::steady(LATENCY, Chance::NEVER);
    cases.push(Case::new(8, "jitter", two));
    cases.push(Case::new(8, "loss5", five));
    for players in [2, 4, 8] {
        for delay in [4, 9, 10] {
            cases.push(Case::lockstep(players, "", delay, calm));
        }
        cases.push(Case::lockstep(players, "loss5-", 8, five));
    }
    cases.push(Case::lockstep(4, "jitter-", 6, two));
    cases.push(Case::lockstep(4, "jitter-", 12, two));
    cases.extend(committed());
    cases
}

/// Returns the match in which one player is cut off for 500 ms, without other losses.
#[must_use]
pub fn outage() -> Case {
    Case::new(
        4,
        "outage",
        NetworkConditions::steady(LATENCY, Chance::NEVER),
    )
}

/// Returns the matches in which one player diverges.
#[must_use]
pub fn desyncs() -> [Case; 2] {
    [2, 4].map(|it| Case::new(it, "desync", usual()))
}

/// Returns the match for the start time measurement.
#[must_use]
pub fn start() -> Case {
    Case::new(4, "start", usual())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_cases_have_the_same_name() {
        let mut names: Vec<_> = watched().into_iter().map(|it| it.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn case_names_agree_with_the_goals() {
        let names: Vec<_> = watched().into_iter().map(|it| it.name).collect();
        for name in [
            "p2",
            "p16",
            "p64",
            "p8/stick-100",
            "p8/lossy",
            "p4/wifi",
            "p8/client-window",
            "p8/lockstep-d4",
            "p4/lockstep-jitter-d6",
            "p4/lockstep-committed-d10",
            "p4/lockstep-loss2-d10",
        ] {
            assert!(names.iter().any(|it| it == name), "{name}");
        }
    }
}
