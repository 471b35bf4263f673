//! Latencies and rate of one case in one round.

use std::time::{Duration, Instant};

use harness::row::Row;
use harness::statistics::{median, quantile};

/// Time of one measurement.
pub const DURATION: Duration = Duration::from_millis(1_200);

/// The first part of it, which is not measured.
const WARM_UP: Duration = Duration::from_millis(200);

/// Returns the time.
#[expect(clippy::disallowed_methods, reason = "it measures")]
pub fn now() -> Instant {
    Instant::now()
}

/// A running measurement.
#[derive(Debug)]
pub struct Recorder {
    begin: Instant,
    latencies_us: Vec<f64>,
    /// Operations since the warm-up.
    count: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            begin: now(),
            latencies_us: Vec::with_capacity(1 << 20),
            count: 0,
        }
    }
}

impl Recorder {
    /// Adds an operation that began at `since` and ends now.
    pub fn add(&mut self, since: Instant) {
        self.add_latency(now() - since);
    }

    /// Adds an operation that has ended.
    pub fn add_latency(&mut self, latency: Duration) {
        if now() - self.begin >= WARM_UP {
            self.latencies_us.push(latency.as_secs_f64() * 1e6);
            self.count += 1;
        }
    }

    /// Adds operations without latencies.
    pub fn add_count(&mut self, count: u64) {
        if now() - self.begin >= WARM_UP {
            self.count += count;
        }
    }

    /// Returns whether the time is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        now() - self.begin >= DURATION
    }

    /// Ends the measurement.
    #[must_use]
    pub fn finish(self) -> Sample {
        let seconds = (now() - self.begin).saturating_sub(WARM_UP).as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let per_s = self.count as f64 / seconds.max(1e-3);
        Sample {
            p50_us: latency(&self.latencies_us, 50),
            p99_us: latency(&self.latencies_us, 99),
            per_s,
        }
    }
}

fn latency(values: &[f64], percent: usize) -> Option<f64> {
    (!values.is_empty()).then(|| quantile(values.to_vec(), percent, 100))
}

/// The values of one case in one round.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Median latency, microseconds.
    pub p50_us: Option<f64>,
    /// 99th percentile of the latency, microseconds.
    pub p99_us: Option<f64>,
    /// Operations a second.
    pub per_s: f64,
}

impl Sample {
    /// Makes a sample of latencies in microseconds that were measured one after another.
    #[must_use]
    pub fn of(latencies_us: &[f64]) -> Self {
        let mean = latencies_us.iter().sum::<f64>() / latencies_us.len().max(1).cast_f64();
        Self {
            p50_us: latency(latencies_us, 50),
            p99_us: latency(latencies_us, 99),
            per_s: 1e6 / mean.max(1e-6),
        }
    }
}

trait CastF64 {
    fn cast_f64(self) -> f64;
}

impl CastF64 for usize {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn cast_f64(self) -> f64 {
        self as f64
    }
}

type Metric = fn(&Sample) -> Option<f64>;

/// Prints the medians of all rounds, and the worst round's rate.
pub fn print(stack: &str, case: &str, samples: &[Sample]) {
    let metrics: [(&str, Metric); 3] = [
        ("p50_us", |it| it.p50_us),
        ("p99_us", |it| it.p99_us),
        ("per_s", |it| Some(it.per_s)),
    ];
    for (metric, of) in metrics {
        let values: Vec<_> = samples.iter().filter_map(of).collect();
        if !values.is_empty() {
            Row::new(stack.to_owned(), case.to_owned(), metric, median(values)).print();
        }
    }
    let tails: Vec<_> = samples
        .iter()
        .filter_map(|it| Some(it.p99_us? / it.p50_us?.max(1e-6)))
        .collect();
    if !tails.is_empty() {
        let tail = median(tails);
        Row::new(stack.to_owned(), case.to_owned(), "p99_of_p50", tail).print();
    }
    let worst = samples.iter().map(|it| it.per_s).min_by(f64::total_cmp);
    if let Some(worst) = worst {
        Row::new(stack.to_owned(), case.to_owned(), "per_s_worst", worst).print();
    }
}
