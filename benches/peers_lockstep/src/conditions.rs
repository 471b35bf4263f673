//! Network conditions, as in the scenario files.

use core::num::NonZeroU32;
use core::time::Duration;

use netsim::{Chance, Jitter, LinkConfig, Loss, Order};

/// Conditions of each direction between two nodes, and outages of whole players.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkConditions {
    /// Minimum and maximum one-way delay. Each datagram draws its own, so they may be reordered.
    pub delay: [Duration; 2],
    /// Loss probability.
    pub loss: Chance,
    /// Mean length of a burst of losses; 1 if losses are independent.
    pub burst_len: u32,
    /// Length of a periodic gap in which a player is cut off; zero for none.
    pub gap: Duration,
    /// Time between the starts of two gaps.
    pub gap_every: Duration,
}

impl NetworkConditions {
    /// Creates conditions with a constant delay and independent losses.
    #[must_use]
    pub const fn steady(delay: Duration, loss: Chance) -> Self {
        Self {
            delay: [delay, delay],
            loss,
            burst_len: 1,
            gap: Duration::ZERO,
            gap_every: Duration::ZERO,
        }
    }

    /// Sets the maximum delay to the minimum delay plus `jitter`.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Duration) -> Self {
        self.delay[1] = self.delay[0] + jitter;
        self
    }

    /// Parses a scenario file; `None` if a line is missing or malformed.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let value = |name: &str| {
            text.lines().find_map(|line| {
                let (key, value) = line.split_once('=')?;
                (key.trim() == name).then(|| value.trim().replace('_', ""))
            })
        };
        let number = |name: &str| value(name)?.parse::<u32>().ok();
        let millis = |name: &str| Some(Duration::from_millis(number(name)?.into()));
        let delay = value("delay_ms")?;
        let (low, high) = delay
            .strip_prefix('[')?
            .strip_suffix(']')?
            .split_once(',')?;
        let ends = [low.trim().parse::<u64>().ok()?, high.trim().parse().ok()?];
        let [low, high] = ends.map(Duration::from_millis);
        (low <= high).then_some(())?;
        Some(Self {
            delay: [low, high],
            loss: Chance::per_million(number("loss_per_million")?),
            burst_len: number("burst_len")?,
            gap: millis("gap_ms")?,
            gap_every: millis("gap_every_ms")?,
        })
    }

    /// Returns the conditions of one direction between two nodes.
    #[must_use]
    pub fn link(&self) -> LinkConfig {
        let [low, high] = self.delay;
        let loss = match NonZeroU32::new(self.burst_len) {
            Some(run_len) if run_len.get() > 1 => Loss::bursts(self.loss, run_len),
            _ => Loss::Bernoulli(self.loss),
        };
        LinkConfig::default()
            .with_delay(low)
            .with_jitter(Jitter::Uniform(high.saturating_sub(low)))
            .with_order(Order::ByDelay)
            .with_loss(loss)
    }
}

/// The scenarios by name.
pub const FILES: [(&str, &str); 8] = [
    ("lan", include_str!("../scenarios/lan.toml")),
    ("wifi", include_str!("../scenarios/wifi.toml")),
    (
        "transatlantic",
        include_str!("../scenarios/transatlantic.toml"),
    ),
    ("mobile", include_str!("../scenarios/mobile.toml")),
    ("lossy", include_str!("../scenarios/lossy.toml")),
    ("lossy10", include_str!("../scenarios/lossy10.toml")),
    ("lossy20", include_str!("../scenarios/lossy20.toml")),
    ("halfway", include_str!("../scenarios/halfway.toml")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_file_is_parsed() {
        for (name, text) in FILES {
            assert!(NetworkConditions::read(text).is_some(), "{name}");
        }
        let (_, mobile) = FILES[3];
        let mobile = NetworkConditions::read(mobile).unwrap();
        assert_eq!(mobile.delay.map(|it| it.as_millis()), [40, 120]);
        assert_eq!(mobile.gap.as_millis(), 300);
        assert_eq!(mobile.loss, Chance::percent(5));
    }

    #[test]
    fn invalid_scenarios_are_refused() {
        assert_eq!(NetworkConditions::read(""), None);
        let (_, lan) = FILES[0];
        assert_eq!(
            NetworkConditions::read(&lan.replace("[0, 1]", "[2, 1]")),
            None
        );
        assert_eq!(NetworkConditions::read(&lan.replace("gap_ms", "gap")), None);
    }
}
