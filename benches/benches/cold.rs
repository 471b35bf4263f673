//! Cost of opening a frame and sealing it again, once a millisecond after a receive that slept, and
//! in a loop.
//!
//! `cargo bench --bench cold [-- PASSES]`, 2,000 of each by default. It measures the monotonic
//! clock around the work alone and reports the median. The variants alternate, so that each finds
//! the caches as the others left them.

#![expect(clippy::print_stdout, reason = "the table is what it is for")]
#![expect(
    clippy::expect_used,
    reason = "a bench whose sockets do not work must stop, not measure something else"
)]

use core::hash::Hasher;
use core::hint::black_box;
use core::time::Duration;
use harness::usage::answer;
use std::hash::DefaultHasher;
use std::net::UdpSocket;
use std::thread;

use crypto::{Aead, Provider, Ring, RustCrypto, Secret32, Suite};
use servicer::Clock;

/// Length of a frame of 100 bytes with its headers, as a relay receives it.
const FRAME: usize = 143;
/// Approximate time between two receives.
const PAUSE: Duration = Duration::from_millis(1);

/// The `--help` text.
const USAGE: &str = "\
Times opening and sealing a frame after a wait, and in a loop.

Usage: cargo bench --bench cold -- [PASSES]

PASSES: 2,000 of each by default.";

fn main() {
    answer(USAGE, &[]);
    let passes = std::env::args()
        .find_map(|argument| argument.parse().ok())
        .unwrap_or(2_000);
    let mut works = [
        ("Ring, AES-128-GCM", aead(&Ring::new(), Suite::Aes128Gcm)),
        (
            "Ring, ChaCha20-Poly1305",
            aead(&Ring::new(), Suite::ChaCha20Poly1305),
        ),
        (
            "RustCrypto, AES-128-GCM",
            aead(&RustCrypto::new(), Suite::Aes128Gcm),
        ),
        ("SipHash, two tags", Box::new(tags)),
    ];
    println!("{:<26} {:>10} {:>10}", "what", "cold_ns", "loop_ns");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let to = socket.local_addr().expect("it is bound");
    let from = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let count = passes * works.len();
    let sender = thread::spawn(move || {
        for _ in 0..count {
            nap();
            from.send_to(&[0; FRAME], to).expect("a socket");
        }
    });
    socket
        .set_read_timeout(Some(PAUSE * 1_000))
        .expect("a socket");
    let cold = measure(&mut works, passes, |buf| {
        socket.recv(buf).expect("a datagram");
    });
    sender.join().expect("it ends");
    let looped = measure(&mut works, passes, |_| ());
    for (((what, _), cold), looped) in works.iter().zip(cold).zip(looped) {
        println!("{what:<26} {cold:>10} {looped:>10}");
    }
}

type Work = Box<dyn FnMut(u64, &mut [u8; FRAME])>;

/// Returns medians in nanoseconds.
fn measure(
    works: &mut [(&str, Work)],
    passes: usize,
    mut wait: impl FnMut(&mut [u8]),
) -> Vec<u128> {
    let clock = Clock::new();
    let mut found = vec![Vec::with_capacity(passes); works.len()];
    for number in 0..passes {
        for ((_, work), found) in works.iter_mut().zip(&mut found) {
            let mut frame = [0; FRAME];
            wait(&mut frame);
            let begin = clock.now();
            work(u64::try_from(number).unwrap_or(0), &mut frame);
            found.push(clock.now().saturating_since(begin).as_nanos());
            black_box(&frame);
        }
    }
    let median = |mut times: Vec<u128>| {
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or(0)
    };
    found.into_iter().map(median).collect()
}

/// Opens a frame and seals it for the next hop under a different key.
fn aead<P: Provider>(provider: &P, suite: Suite) -> Work {
    let [before, next] = [1, 2].map(|key| provider.aead(suite, &Secret32::new([key; 32])));
    let mut sealed = [0; FRAME];
    let mut tag = [0; 16];
    before.seal([0; 12], &[0; 16], &mut sealed, &mut tag);
    Box::new(move |number, frame| {
        *frame = sealed;
        let opened = before.open([0; 12], &[0; 16], frame, &tag);
        assert_eq!(opened, Ok(()), "it is genuine");
        let mut nonce = [0; 12];
        for (to, from) in nonce.iter_mut().zip(number.to_be_bytes()) {
            *to = from;
        }
        next.seal(nonce, &[0; 16], frame, &mut [0; 16]);
    })
}

/// Hashes a frame twice with the standard library's hash, as for hops with tags only.
fn tags(number: u64, frame: &mut [u8; FRAME]) {
    for key in [1, 2] {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(number ^ key);
        hasher.write(frame);
        black_box(hasher.finish());
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the other thread is to be idle meanwhile"
)]
fn nap() {
    thread::sleep(PAUSE);
}
