//! `peers udp [--rounds N] [--only CASE]`: prints what was measured, a row a line.

#![forbid(unsafe_code)]

use peers::case::{CASES, Case};
use peers::floor::{self, Floor};
use peers::pair::{Link, Pair};
use peers::round::{Contender, compare};
use peers::row::Row;
use peers::stack::Stack;
use peers::stack::enet::Enet;
use peers::stack::quinn_proto::QuinnProto;
use peers::stack::renet::Renet;
use peers::stack::tickwire::Tickwire;

fn main() {
    let only = std::env::args().nth(1);
    for case in CASES {
        if only.as_ref().is_none_or(|only| only == case.name) {
            in_memory(case, 11);
        }
    }
}

/// What messages cost in memory, both ends.
fn in_memory(case: Case, rounds: u32) {
    let mut contenders = [
        pair::<Tickwire>(case),
        pair::<Renet>(case),
        pair::<QuinnProto>(case),
        pair::<Enet>(case),
        Contender::link(floor::NAME, Floor::new(case)),
    ];
    let times = compare(&mut contenders, rounds);
    for (contender, value) in contenders.iter().zip(times) {
        Row {
            stack: contender.stack,
            case: case.name,
            metric: "cpu_ns_per_message",
            value,
        }
        .print();
    }
}

fn pair<S: Stack + 'static>(case: Case) -> Contender {
    let mut pair = Pair::<S>::new(case);
    pair.carry(100);
    Contender::link(S::NAME, pair)
}
