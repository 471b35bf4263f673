//! CPU time per spectator and tick of a server, unsealed and sealed; goal G4 of lockstep.
//!
//! `cargo bench --bench spectators [-- ROUNDS]`, 21 by default, at least 5. It is compared, in
//! interleaved rounds, with a plain copy of the datagram into a buffer and, if sealed, with a
//! header, an AEAD and a replay window. No sockets are used.

#![expect(clippy::print_stdout, reason = "the table is what it is for")]

use benches::floor::BareDirection;
use benches::measure::{Repeat, compare};
use benches::spectator_bench::{Part, SpectatorBench};
use harness::usage::answer;

/// The `--help` text.
const USAGE: &str = "\
Times what a spectator costs a server in a tick.

Usage: cargo bench --bench spectators -- [ROUNDS]

ROUNDS: 21 by default, at least 5.";

fn main() {
    answer(USAGE, &[]);
    let rounds = std::env::args()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(21)
        .max(5);
    println!("{rounds} interleaved rounds; nanoseconds of CPU time for each spectator in a tick");
    println!("spectators  acknowledge  part     ours_ns  copy_ns");
    for spectators in [256, 5_000] {
        for age in [1, 8] {
            for part in [Part::Sending, Part::Hearing, Part::Both] {
                let mut spectator_bench = SpectatorBench::new(spectators, age, part);
                let (source, mut buf) = ([7_u8; 14], Vec::with_capacity(2_000));
                let mut floor = Repeat(|| {
                    for _ in 0..spectators {
                        buf.extend_from_slice(std::hint::black_box(&source));
                        std::hint::black_box(&mut buf).clear();
                    }
                });
                let found = compare(&mut spectator_bench, &mut floor, rounds);
                let each = f64::from(spectators);
                println!(
                    "{spectators:>10}  {age:>2} old       {part:<8} {:>7.1}  {:>7.1}  {:.1} bytes",
                    found.ours / each,
                    found.floor / each,
                    spectator_bench.bytes_per_datagram(),
                    part = format!("{part:?}"),
                );
            }
        }
    }
    println!("sealed, one in four says what it has in each tick; all acknowledge what comes");
    println!("spectators  part     ours_ns  seal_ns  ms_a_tick");
    for spectators in [256, 5_000] {
        for part in [Part::Sending, Part::Hearing, Part::Both] {
            let mut spectator_bench = SpectatorBench::sealed(spectators, 1, part);
            let (mut direction, message) = (BareDirection::new(), [7_u8; 22]);
            let mut floor = Repeat(|| {
                for _ in 0..spectators {
                    direction.pass(&message);
                }
            });
            let found = compare(&mut spectator_bench, &mut floor, rounds);
            let each = f64::from(spectators);
            println!(
                "{spectators:>10}  {part:<8} {:>7.1}  {:>7.1}  {:>9.3}  {:.1} bytes",
                found.ours / each,
                found.floor / each,
                found.ours / 1e6,
                spectator_bench.bytes_per_datagram(),
                part = format!("{part:?}"),
            );
        }
    }
}
