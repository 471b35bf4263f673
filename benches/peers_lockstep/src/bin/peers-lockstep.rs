//! `peers-lockstep [--rounds N] [--only CASE] [--stack NAME]`: prints measured values, one row per
//! line.

#![forbid(unsafe_code)]

use harness::row;
use harness::statistics::{median, quantile};
use harness::usage::answer;
use peers_lockstep::case::{self, Case, Field, Inputs};
use peers_lockstep::cost::{Contender, compare};
use peers_lockstep::gauge::{self, Found};
use peers_lockstep::play::{Burst, Pad, Play, Stick};
use peers_lockstep::race::Turns;
use peers_lockstep::stack::fortress::Fortress;
use peers_lockstep::stack::ggrs::Ggrs;
use peers_lockstep::stack::tickwire_mesh::TickwireMesh;
use peers_lockstep::stack::tickwire_server::TickwireServer;
use peers_lockstep::stack::{Setup, Stack};
use peers_lockstep::sync;

/// Number of seeded matches with a desync, and of matches that only start.
const SEEDS: u64 = 100;

/// Parsed arguments.
struct Arguments {
    /// Rounds of the CPU time measurements.
    rounds: u32,
    /// The only case to run.
    only: Option<String>,
    /// The only stack to run, for example for a profile.
    stack: Option<String>,
}

/// The `--help` text.
const USAGE: &str = "\
Plays matches of lockstep and rollback with each stack; prints a row a line.

Usage: peers-lockstep [--rounds N] [--only CASE] [--stack NAME]

--rounds N    rounds in which CPU time is taken; 11 by default
--only CASE   runs this case only
--stack NAME  runs this stack only";

fn main() {
    answer(USAGE, &["--rounds", "--only", "--stack"]);
    let arguments = Arguments::parse();
    for case in case::bare() {
        costs(&case, &arguments);
    }
    costs(&case::many_players(), &arguments);
    costs(&case::ahead(), &arguments);
    for case in case::committed() {
        costs(&case, &arguments);
    }
    sync_tests(&arguments);
    for case in case::watched() {
        match case.inputs {
            Inputs::Pad => watch::<Pad>(&case, &arguments),
            Inputs::Stick => watch::<Stick>(&case, &arguments),
            Inputs::Burst => watch::<Burst>(&case, &arguments),
        }
    }
    outage(&arguments);
    for case in case::desyncs() {
        desync(&case, &arguments);
    }
    start(&arguments);
}

impl Arguments {
    fn parse() -> Self {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let after = |name| {
            let at = arguments.iter().position(|argument| argument == name)?;
            arguments.get(at + 1)
        };
        let rounds = after("--rounds").map(|text| text.parse().expect("a number of rounds"));
        Self {
            rounds: rounds.unwrap_or(11).max(1),
            only: after("--only").cloned(),
            stack: after("--stack").cloned(),
        }
    }

    /// Returns whether to run `case` with `stack`.
    fn asks<P: Play, S: Stack<P>>(&self, case: &Case) -> bool {
        let is_of_field = match case.field {
            Field::All => true,
            Field::Equals => !S::HAS_SERVER,
            Field::Mesh => S::NAME == <TickwireMesh<P> as Stack<P>>::NAME,
            Field::Server => S::HAS_SERVER,
        };
        let is_asked = self.only.as_ref().is_none_or(|only| *only == case.name)
            && self.stack.as_ref().is_none_or(|stack| stack == S::NAME);
        is_of_field && is_asked
    }
}

/// CPU cost of a frame, with one turn per frame and with one every 4 ms.
fn costs(case: &Case, arguments: &Arguments) {
    let row = |stack, metric, value| {
        let case = &case.name;
        row::print(stack, case, metric, value);
    };
    for (turns, metric) in [
        (Turns::EachFrame, "cpu_us_per_frame"),
        (Turns::Each4Ms, "cpu_us_per_frame_4ms"),
    ] {
        let mut contenders = Vec::new();
        enter::<TickwireServer<Pad>>(&mut contenders, case, turns, arguments);
        enter::<TickwireMesh<Pad>>(&mut contenders, case, turns, arguments);
        enter::<Ggrs<Pad>>(&mut contenders, case, turns, arguments);
        enter::<Fortress<Pad>>(&mut contenders, case, turns, arguments);
        let costs = compare(&mut contenders, arguments.rounds);
        for (contender, cost) in contenders.iter().zip(costs) {
            row(contender.stack, metric, cost.player / 1e3);
            if cost.server > 0.0 && turns == Turns::EachFrame {
                row(contender.stack, "server_ns_per_player_tick", cost.server);
            }
        }
    }
}

/// CPU cost of a frame of the sync test.
fn sync_tests(arguments: &Arguments) {
    if arguments
        .only
        .as_ref()
        .is_some_and(|only| only != sync::CASE)
    {
        return;
    }
    let asks = |name: &str| arguments.stack.as_ref().is_none_or(|stack| stack == name);
    let mut contenders = sync::contenders(asks);
    let costs = compare(&mut contenders, arguments.rounds);
    for (contender, cost) in contenders.iter().zip(costs) {
        row::print(
            contender.stack,
            sync::CASE,
            "cpu_us_per_frame",
            cost.player / 1e3,
        );
    }
}

fn enter<S: Stack<Pad> + 'static>(
    contenders: &mut Vec<Contender>,
    case: &Case,
    turns: Turns,
    arguments: &Arguments,
) {
    if arguments.asks::<Pad, S>(case) {
        contenders.push(Contender::new::<Pad, S>(case.setup, turns));
    }
}

/// Observed values of a match.
fn watch<P: Play>(case: &Case, arguments: &Arguments) {
    watch_one::<P, TickwireServer<P>>(case, arguments);
    watch_one::<P, TickwireMesh<P>>(case, arguments);
    watch_one::<P, Ggrs<P>>(case, arguments);
    watch_one::<P, Fortress<P>>(case, arguments);
}

fn watch_one<P: Play, S: Stack<P>>(case: &Case, arguments: &Arguments) {
    if !arguments.asks::<P, S>(case) {
        return;
    }
    let Found {
        first_step_ms: _,
        frames_per_s,
        resimulated_per_s,
        stalled_ms_per_s,
        p999_stall_ms,
        worst_stall_ms,
        up_bytes_per_s,
        down_bytes_per_s,
        up_payload_bytes_per_s,
        down_payload_bytes_per_s,
        up_unsealed_bytes_per_s,
        longest_datagram_bytes,
        up_datagrams_per_s,
        latency_ms,
        late_per_minute,
    } = gauge::gauge::<P, S>(case.setup);
    let rows = [
        ("frames_per_s", Some(frames_per_s)),
        ("stalled_ms_per_s", Some(stalled_ms_per_s)),
        ("p999_stall_ms", Some(p999_stall_ms)),
        ("worst_stall_ms", Some(worst_stall_ms)),
        ("resimulated_per_s", Some(resimulated_per_s)),
        ("up_bytes_per_s", Some(up_bytes_per_s)),
        ("down_bytes_per_s", Some(down_bytes_per_s)),
        ("up_payload_bytes_per_s", Some(up_payload_bytes_per_s)),
        ("down_payload_bytes_per_s", Some(down_payload_bytes_per_s)),
        ("up_unsealed_bytes_per_s", Some(up_unsealed_bytes_per_s)),
        ("longest_datagram_bytes", Some(longest_datagram_bytes)),
        ("up_datagrams_per_s", Some(up_datagrams_per_s)),
        ("latency_ms", latency_ms),
        ("late_inputs_per_minute", late_per_minute),
    ];
    for (metric, value) in rows {
        print::<P, S>(case, metric, value);
    }
}

fn print<P: Play, S: Stack<P>>(case: &Case, metric: &str, value: Option<f64>) {
    if let Some(value) = value {
        row::print(S::NAME, &case.name, metric, value);
    }
}

/// Effect of one player's outage on others.
fn outage(arguments: &Arguments) {
    outage_of::<TickwireServer<Pad>>(arguments);
    outage_of::<TickwireMesh<Pad>>(arguments);
    outage_of::<Ggrs<Pad>>(arguments);
    outage_of::<Fortress<Pad>>(arguments);
}

fn outage_of<S: Stack<Pad>>(arguments: &Arguments) {
    let case = &case::outage();
    if arguments.asks::<Pad, S>(case) {
        let found = gauge::outage::<Pad, S>(case.setup);
        print::<Pad, S>(case, "others_stalled_ms", Some(found.others_stalled_ms));
        print::<Pad, S>(case, "caught_up_ms", Some(found.caught_up_ms));
    }
}

/// Time until a desync is detected.
fn desync(case: &Case, arguments: &Arguments) {
    desync_of::<TickwireServer<Pad>>(case, arguments);
    desync_of::<TickwireMesh<Pad>>(case, arguments);
    desync_of::<Ggrs<Pad>>(case, arguments);
    desync_of::<Fortress<Pad>>(case, arguments);
}

fn desync_of<S: Stack<Pad>>(case: &Case, arguments: &Arguments) {
    if arguments.asks::<Pad, S>(case) {
        let found = seeded(case, gauge::desync::<Pad, S>);
        #[expect(clippy::cast_precision_loss, reason = "a hundred")]
        let share = |most: f64| {
            let in_time = found.iter().filter(|millis| **millis <= most);
            in_time.count() as f64 / found.len() as f64
        };
        print::<Pad, S>(case, "desync_within_150_ms", Some(share(150.0)));
        print::<Pad, S>(case, "desync_p50_ms", Some(median(found.clone())));
        print::<Pad, S>(case, "desync_p99_ms", Some(quantile(found, 99, 100)));
    }
}

/// Time until every player has taken the first step.
fn start(arguments: &Arguments) {
    start_of::<TickwireServer<Pad>>(arguments);
    start_of::<TickwireMesh<Pad>>(arguments);
    start_of::<Ggrs<Pad>>(arguments);
    start_of::<Fortress<Pad>>(arguments);
}

fn start_of<S: Stack<Pad>>(arguments: &Arguments) {
    let case = &case::start();
    if arguments.asks::<Pad, S>(case) {
        let found = seeded(case, |setup| {
            let (_, first_step) = gauge::begun::<Pad, S>(setup);
            first_step.as_secs_f64() * 1e3
        });
        print::<Pad, S>(case, "first_step_p50_ms", Some(median(found.clone())));
        print::<Pad, S>(case, "first_step_p99_ms", Some(quantile(found, 99, 100)));
    }
}

fn seeded(case: &Case, mut find: impl FnMut(Setup) -> f64) -> Vec<f64> {
    let seeds = 0..SEEDS;
    let with = |seed| Setup { seed, ..case.setup };
    seeds.map(|seed| find(with(seed))).collect()
}
