//! Interleaved rounds: every stack does the same work in each.

use core::time::Duration;

use benches::measure::cpu_time_of;
use harness::statistics::median;

use crate::pair::Link;

/// Approximate CPU time per stack and round.
const SHARE: Duration = Duration::from_millis(15);

/// A repeatable workload.
pub struct Contender {
    /// Name of the stack.
    pub stack: &'static str,
    /// Runs about this many repetitions. Returns how many, and the CPU time in nanoseconds.
    run: Box<dyn FnMut(u64) -> (u64, f64)>,
}

impl Contender {
    /// Creates a workload from a link that carries messages.
    pub fn link(stack: &'static str, mut link: impl Link + 'static) -> Self {
        Self::repeat(stack, move |messages| link.carry(messages))
    }

    /// `run` does about the given number of repetitions and returns how many.
    pub fn repeat(stack: &'static str, mut run: impl FnMut(u64) -> u64 + 'static) -> Self {
        Self::timed(stack, move |count| {
            let mut done = 0;
            let time = cpu_time_of(|| done = run(count));
            (done, time)
        })
    }

    /// Like [`repeat`](Self::repeat), but `run` measures the time itself.
    pub fn timed(
        stack: &'static str,
        mut run: impl FnMut(u64) -> (u64, Duration) + 'static,
    ) -> Self {
        Self {
            stack,
            run: Box::new(move |count| {
                let (done, time) = run(count);
                (done, time.as_secs_f64() * 1e9)
            }),
        }
    }
}

/// Runs all of them in turn, `rounds` times, in rotating order. Returns each one's median
/// nanoseconds per repetition.
pub fn compare(contenders: &mut [Contender], rounds: u32) -> Vec<f64> {
    let shares: Vec<u64> = contenders.iter_mut().map(share).collect();
    let mut times = vec![Vec::new(); contenders.len()];
    for round in 0..rounds as usize {
        for turn in 0..contenders.len() {
            let at = (round + turn) % contenders.len();
            let (done, nanos) = (contenders[at].run)(shares[at]);
            #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
            times[at].push(nanos / done as f64);
        }
    }
    times.into_iter().map(median).collect()
}

/// Returns how many repetitions take about a share of a round. This also warms it up.
fn share(contender: &mut Contender) -> u64 {
    let share = SHARE.as_secs_f64() * 1e9;
    let mut count = 1;
    loop {
        let (done, nanos) = (contender.run)(count);
        if nanos >= share / 4.0 {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_precision_loss,
                clippy::cast_sign_loss,
                reason = "a small count"
            )]
            return ((done as f64 * share / nanos) as u64).max(1);
        }
        count *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_alternate_and_the_median_is_printed() {
        let slow_once = |times: &'static [u64]| {
            let mut call = 0;
            move |count: u64| {
                let nanos = times.get(call).copied().unwrap_or(100);
                call += 1;
                (count, Duration::from_nanos(nanos * count))
            }
        };
        let mut contenders = [
            Contender::timed("a", slow_once(&[20_000_000, 900, 100, 100])),
            Contender::timed("b", slow_once(&[20_000_000, 300, 300, 900])),
        ];
        assert_eq!(compare(&mut contenders, 3), [100.0, 300.0]);
    }
}
