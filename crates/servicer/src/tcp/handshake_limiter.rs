//! Connection limits for each source, and eviction of handshakes.

use std::collections::{BTreeMap, BTreeSet};

use wire::{Instant, SourceKey};

use super::StreamConfig;
use super::table::{Key, NoSlot};

#[derive(Debug, Default)]
pub(super) struct HandshakeLimiter {
    by_source: BTreeMap<SourceKey, SourceUse>,
    /// Sources with running handshakes, the one with the most last.
    by_handshakes: BTreeSet<(usize, SourceKey)>,
    handshakes: usize,
}

#[derive(Debug, Default)]
struct SourceUse {
    connections: usize,
    /// Running handshakes with their start times, the oldest first.
    handshakes: BTreeMap<Key, Instant>,
}

impl HandshakeLimiter {
    /// Decides whether `source` may have one more connection, and returns the handshake to evict
    /// for it, if any.
    ///
    /// If the handshake limit is reached, the new connection replaces the oldest handshake of the
    /// source with the most, if its own source has fewer. An idle attacker therefore cannot block
    /// other sources, and an active handshake completes before it is the oldest.
    ///
    /// From half of its share on, or if no source has more handshakes, a source replaces its own
    /// oldest handshake once that has had its grace. An idle peer thus blocks others of its source
    /// for at most the grace.
    pub(super) fn admit(
        &self,
        now: Instant,
        source: SourceKey,
        config: &StreamConfig,
    ) -> Result<Option<Key>, NoSlot> {
        let own = self.by_source.get(&source);
        let connections = own.map_or(0, |it| it.connections);
        let handshakes = own.map_or(0, |it| it.handshakes.len());
        let evictable = own.and_then(|it| {
            let (key, since) = it.handshakes.first_key_value()?;
            (now.saturating_since(*since) >= config.handshake_grace).then_some(*key)
        });
        let share = config.handshakes_per_source_max;
        if connections >= config.connections_per_source_max || handshakes >= share {
            return evictable.map(Some).ok_or(NoSlot::Source);
        }
        if handshakes >= share.div_ceil(2) && evictable.is_some() {
            return Ok(evictable);
        }
        if self.handshakes < config.handshakes_max {
            return Ok(None);
        }
        self.by_handshakes
            .last()
            .filter(|(most, _)| *most > handshakes)
            .and_then(|(_, largest)| self.by_source.get(largest)?.handshakes.first_key_value())
            .map(|(key, _)| *key)
            .or(evictable)
            .map(Some)
            .ok_or(NoSlot::Handshakes)
    }

    pub(super) fn begin(&mut self, now: Instant, source: SourceKey, key: Key) {
        let of_source = self.by_source.entry(source).or_default();
        of_source.connections = of_source.connections.saturating_add(1);
        let before = of_source.handshakes.len();
        if of_source.handshakes.insert(key, now).is_none() {
            self.handshakes = self.handshakes.saturating_add(1);
            self.by_handshakes.remove(&(before, source));
            self.by_handshakes
                .insert((before.saturating_add(1), source));
        }
    }

    pub(super) fn end_handshake(&mut self, source: SourceKey, key: Key) {
        let Some(of_source) = self.by_source.get_mut(&source) else {
            return;
        };
        let before = of_source.handshakes.len();
        if of_source.handshakes.remove(&key).is_some() {
            self.handshakes = self.handshakes.saturating_sub(1);
            self.by_handshakes.remove(&(before, source));
            if before > 1 {
                self.by_handshakes
                    .insert((before.saturating_sub(1), source));
            }
        }
    }

    pub(super) fn leave(&mut self, source: SourceKey, key: Key) {
        self.end_handshake(source, key);
        if let Some(of_source) = self.by_source.get_mut(&source) {
            of_source.connections = of_source.connections.saturating_sub(1);
            if of_source.connections == 0 {
                self.by_source.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    const NOW: Instant = Instant::ZERO;

    fn source(number: u8) -> SourceKey {
        SourceKey::of(IpAddr::from([192, 0, 2, number]))
    }

    fn config() -> StreamConfig {
        StreamConfig {
            handshakes_max: 8,
            handshakes_per_source_max: 4,
            ..StreamConfig::default()
        }
    }

    #[test]
    fn silent_connections_of_many_sources_exclude_no_other() {
        let (config, mut limiter) = (config(), HandshakeLimiter::default());
        for key in 0..8 {
            let source = source(u8::try_from(key % 2).unwrap());
            assert_eq!(limiter.admit(NOW, source, &config), Ok(None));
            limiter.begin(NOW, source, Key(key));
        }
        // Two sources have four each: the oldest of one of them.
        assert_eq!(limiter.admit(NOW, source(9), &config), Ok(Some(Key(1))));
        limiter.leave(source(1), Key(1));
        limiter.begin(NOW, source(9), Key(8));
        assert_eq!(limiter.admit(NOW, source(8), &config), Ok(Some(Key(0))));
        // A source with as many as the largest evicts none of another source.
        limiter.leave(source(0), Key(0));
        limiter.begin(NOW, source(8), Key(9));
        assert_eq!(
            limiter.admit(NOW, source(0), &config),
            Err(NoSlot::Handshakes)
        );
        // A second one, while the largest source has three.
        assert_eq!(limiter.admit(NOW, source(9), &config), Ok(Some(Key(3))));
    }

    #[test]
    fn an_ended_handshake_frees_its_slot() {
        let (config, mut limiter) = (config(), HandshakeLimiter::default());
        for key in 0..8 {
            limiter.begin(NOW, source(u8::try_from(key).unwrap()), Key(key));
        }
        limiter.end_handshake(source(3), Key(3));
        assert_eq!(limiter.admit(NOW, source(9), &config), Ok(None));
        limiter.leave(source(3), Key(3));
        limiter.begin(NOW, source(9), Key(8));
        assert_eq!(limiter.admit(NOW, source(10), &config), Ok(Some(Key(8))));
        for key in 0..9 {
            limiter.leave(source(u8::try_from(key).unwrap()), Key(key));
        }
        limiter.leave(source(9), Key(8));
        assert!(limiter.by_source.is_empty() && limiter.by_handshakes.is_empty());
        assert_eq!(limiter.handshakes, 0);
    }

    #[test]
    fn the_share_of_a_source_holds_even_with_free_slots() {
        let (mut config, mut limiter) = (config(), HandshakeLimiter::default());
        for key in 0..4 {
            limiter.begin(NOW, source(1), Key(key));
        }
        assert_eq!(limiter.admit(NOW, source(1), &config), Err(NoSlot::Source));
        limiter.end_handshake(source(1), Key(0));
        assert_eq!(limiter.admit(NOW, source(1), &config), Ok(None));
        config.connections_per_source_max = 4;
        assert_eq!(limiter.admit(NOW, source(1), &config), Err(NoSlot::Source));
    }

    #[test]
    fn within_a_source_the_oldest_is_evicted_after_its_grace_time() {
        let (config, mut limiter) = (config(), HandshakeLimiter::default());
        let late = NOW + config.handshake_grace;
        let early = NOW + config.handshake_grace / 2;
        limiter.begin(NOW, source(1), Key(0));
        assert_eq!(
            limiter.admit(late, source(1), &config),
            Ok(None),
            "one of four"
        );
        limiter.begin(early, source(1), Key(1));
        assert_eq!(limiter.admit(early, source(1), &config), Ok(None));
        assert_eq!(limiter.admit(late, source(1), &config), Ok(Some(Key(0))));
        for key in 2..4 {
            limiter.begin(early, source(1), Key(key));
        }
        assert_eq!(
            limiter.admit(early, source(1), &config),
            Err(NoSlot::Source)
        );
        assert_eq!(limiter.admit(late, source(1), &config), Ok(Some(Key(0))));
        limiter.leave(source(1), Key(0));
        // The next oldest still has its grace.
        assert_eq!(limiter.admit(late, source(1), &config), Ok(None));
        limiter.begin(late, source(1), Key(4));
        assert_eq!(limiter.admit(late, source(1), &config), Err(NoSlot::Source));
        // At the total limit, the largest source evicts its own.
        for (number, key) in (2..6).zip(5..) {
            limiter.begin(late, source(number), Key(key));
        }
        let mut few = config;
        few.handshakes_per_source_max = 100;
        let end = late + config.handshake_grace;
        assert_eq!(
            limiter.admit(late, source(1), &few),
            Err(NoSlot::Handshakes)
        );
        assert_eq!(limiter.admit(end, source(1), &few), Ok(Some(Key(1))));
    }
}
