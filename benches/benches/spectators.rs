//! CPU time that a spectator costs a server in a tick, unsealed; goal G4 of lockstep.
//!
//! `cargo bench --bench spectators [-- ROUNDS]`, 21 by default, 5 at least. Beside it stands the bare
//! copy of such a datagram into a buffer, from interleaved rounds.

#![expect(clippy::print_stdout, reason = "the table is what it is for")]

use benches::hall::{Hall, Part};
use benches::measure::{Repeat, compare};

fn main() {
    let rounds = std::env::args()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(21)
        .max(5);
    println!("{rounds} interleaved rounds; nanoseconds of CPU time for each spectator in a tick");
    println!("spectators  acknowledge  part     ours_ns  copy_ns");
    for spectators in [256, 5_000] {
        for age in [1, 8] {
            for part in [Part::Sending, Part::Hearing, Part::Both] {
                let mut hall = Hall::new(spectators, age, part);
                let (source, mut buf) = ([7_u8; 14], Vec::with_capacity(2_000));
                let mut floor = Repeat(|| {
                    for _ in 0..spectators {
                        buf.extend_from_slice(std::hint::black_box(&source));
                        std::hint::black_box(&mut buf).clear();
                    }
                });
                let found = compare(&mut hall, &mut floor, rounds);
                let each = f64::from(spectators);
                println!(
                    "{spectators:>10}  {age:>2} old       {part:<8} {:>7.1}  {:>7.1}  {:.1} bytes",
                    found.ours / each,
                    found.floor / each,
                    hall.bytes_per_datagram(),
                    part = format!("{part:?}"),
                );
            }
        }
    }
}
