//! `peers [--rounds N] [--load-rounds N] [--only CASE] [--stack NAME]`: prints measured times, one
//! row per line.

#![forbid(unsafe_code)]

use benches::flood::Flood;
use benches::floor::BareHash;
use harness::row;
use harness::statistics::median;
use harness::usage::answer;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use peers::case::{CASES, Case};
use peers::floor::{self, Floor};
use peers::load::{self, Found, PLANS, Plan, server};
use peers::pair::{Link, Pair};
use peers::refuse::QuinnRetry;
use peers::round::{Contender, compare};
use peers::shake::{BareServer, Handshakes};
use peers::stack::Stack;
use peers::stack::enet::Enet;
use peers::stack::quinn_proto::QuinnProto;
use peers::stack::renet::{CLIENTS_MAX, Renet};
use peers::stack::tickwire::Tickwire;

/// Parsed arguments.
struct Arguments {
    /// Rounds of the in-memory cases.
    rounds: u32,
    /// Rounds of the cases over sockets.
    load_rounds: u32,
    /// The only case to run.
    only: Option<String>,
    /// The only stack to run, for example for a profile.
    stack: Option<String>,
}

/// The `--help` text.
const USAGE: &str = "\
Times what messages, handshakes and refusals cost each stack; prints a row a line.

Usage: peers [--rounds N] [--load-rounds N] [--only CASE] [--stack NAME]

--rounds N       rounds in memory; 11 by default
--load-rounds N  rounds over sockets, some 12 s for each stack and case; 3 by default
--only CASE      runs this case only
--stack NAME     runs this stack only";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, stack, plan] = arguments.as_slice()
        && role == server::ROLE
    {
        server::serve(stack, Plan::named(plan).expect("a plan of ours"));
        return;
    }
    answer(USAGE, &["--rounds", "--load-rounds", "--only", "--stack"]);
    let arguments = Arguments::parse(&arguments);
    for case in CASES.into_iter().filter(|case| arguments.asks(case.name)) {
        in_memory(case, &arguments);
    }
    if arguments.asks("handshake") {
        handshakes(&arguments);
    }
    if arguments.asks("sha256_1200") {
        refusals(&arguments);
    }
    allow_sockets();
    for plan in PLANS.into_iter().filter(|plan| arguments.asks(plan.name)) {
        over_sockets(plan, &arguments);
    }
}

impl Arguments {
    fn parse(arguments: &[String]) -> Self {
        let after = |name| {
            let at = arguments.iter().position(|argument| argument == name)?;
            arguments.get(at + 1)
        };
        let number = |name, default| {
            after(name).map_or(default, |text| text.parse().expect("a number of rounds"))
        };
        Self {
            rounds: number("--rounds", 11).max(1),
            load_rounds: number("--load-rounds", 3).max(1),
            only: after("--only").cloned(),
            stack: after("--stack").cloned(),
        }
    }

    fn asks(&self, case: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only == case)
    }

    fn has(&self, stack: &str) -> bool {
        self.stack.as_ref().is_none_or(|only| only == stack)
    }
}

/// Cost of messages in memory, for both ends.
fn in_memory(case: Case, arguments: &Arguments) {
    let mut contenders = vec![
        pair::<Tickwire>(case),
        pair::<Renet>(case),
        pair::<QuinnProto>(case),
        pair::<Enet>(case),
        Contender::link(floor::NAME, Floor::new(case)),
    ];
    contenders.retain(|contender| arguments.has(contender.stack));
    let times = compare(&mut contenders, arguments.rounds);
    for (contender, value) in contenders.iter().zip(times) {
        row::print(contender.stack, case.name, "cpu_ns_per_message", value);
    }
}

fn pair<S: Stack + 'static>(case: Case) -> Contender {
    let mut pair = Pair::<S>::new(case);
    pair.carry(100);
    Contender::link(S::NAME, pair)
}

/// Cost of a connection to the server.
fn handshakes(arguments: &Arguments) {
    let mut bare = BareServer::new();
    let mut contenders = vec![
        shakes::<Tickwire>(),
        shakes::<Renet>(),
        shakes::<QuinnProto>(),
        shakes::<Enet>(),
        repeat(floor::NAME, move || bare.shake_hands()),
    ];
    contenders.retain(|contender| arguments.has(contender.stack));
    let times = compare(&mut contenders, arguments.rounds);
    for (contender, nanos) in contenders.iter().zip(times) {
        micros(contender.stack, "handshake", nanos);
    }
}

fn shakes<S: Stack + 'static>() -> Contender {
    let mut handshakes = Handshakes::<S>::new();
    Contender::timed(S::NAME, move |count| handshakes.run(count))
}

/// Cost of a first datagram to a server that rejects it, compared with a hash over as many bytes.
fn refusals(arguments: &Arguments) {
    let (mut no_cookie, mut stolen) = (Flood::without_cookie(), Flood::with_stolen_token());
    let (mut retry, hash) = (QuinnRetry::new(), BareHash::new());
    let mut contenders = [
        repeat(Tickwire::NAME, move || no_cookie.refuse()),
        repeat(Tickwire::NAME, move || stolen.refuse()),
        repeat(QuinnProto::NAME, move || retry.refuse()),
        repeat(floor::NAME, move || hash.hash()),
    ];
    let cases = [
        "refuse_no_cookie",
        "refuse_stolen_token",
        "refuse_no_cookie",
        "sha256_1200",
    ];
    let times = compare(&mut contenders, arguments.rounds);
    for ((contender, case), nanos) in contenders.iter().zip(cases).zip(times) {
        micros(contender.stack, case, nanos);
    }
}

fn repeat(stack: &'static str, mut work: impl FnMut() + 'static) -> Contender {
    Contender::repeat(stack, move |count| {
        (0..count).for_each(|_| work());
        count
    })
}

fn micros(stack: &'static str, case: &'static str, nanos: f64) {
    row::print(stack, case, "server_us", nanos / 1_000.0);
}

/// One stack's runs of a plan.
struct Runs {
    stack: &'static str,
    run: fn(&'static str, Plan) -> Found,
    found: Vec<Found>,
}

/// Cost of many clients to a server.
fn over_sockets(plan: Plan, arguments: &Arguments) {
    let of = |stack, run| Runs {
        stack,
        run,
        found: Vec::new(),
    };
    let mut runs = vec![
        of(Tickwire::NAME, load::run::<Tickwire>),
        of("tickwire-woken", load::run::<Tickwire>),
        // The clients are quinn-proto's; the server is quinn.
        of("quinn", load::run::<QuinnProto>),
        of("quinn-ticked", load::run::<QuinnProto>),
        of(Enet::NAME, load::run::<Enet>),
    ];
    if plan.clients as usize <= CLIENTS_MAX {
        runs.push(of(Renet::NAME, load::run::<Renet>));
    }
    runs.retain(|runs| arguments.has(runs.stack));
    for round in 0..arguments.load_rounds as usize {
        let count = runs.len();
        for turn in 0..count {
            let runs = &mut runs[(round + turn) % count];
            runs.found.push((runs.run)(runs.stack, plan));
        }
    }
    for Runs { stack, found, .. } in runs {
        let of = |metric, value: fn(&Found) -> f64| {
            row::print(
                stack,
                plan.name,
                metric,
                median(found.iter().map(value).collect()),
            );
        };
        of("server_cpu_ns_per_message", |it| it.ns_per_message);
        of("delivered_fraction", |it| it.delivered);
        of("server_cpu_fraction", |it| it.server_share);
        of("client_turns_fraction", |it| it.client_turns);
    }
}

/// Raises the file limit to a socket per client.
fn allow_sockets() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("up to the hard limit");
}
