//! Per-source connection limits and handshake eviction.

use std::collections::{BTreeMap, BTreeSet};

use wire::{Instant, SourceKey};

use super::config::StreamConfig;
use super::table::{Key, NoPlace};

/// The accepted connections, counted by source.
#[derive(Debug, Default)]
pub(super) struct Crowds {
    by_source: BTreeMap<SourceKey, Crowd>,
    /// Sources with running handshakes, the one with the most last.
    by_handshakes: BTreeSet<(usize, SourceKey)>,
    /// Number of running handshakes.
    handshakes: usize,
}

/// The connections of one source.
#[derive(Debug, Default)]
struct Crowd {
    connections: usize,
    /// Running handshakes with their start times, the oldest first.
    handshakes: BTreeMap<Key, Instant>,
}

impl Crowds {
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
    pub(super) fn judge(
        &self,
        now: Instant,
        source: SourceKey,
        config: &StreamConfig,
    ) -> Result<Option<Key>, NoPlace> {
        let own = self.by_source.get(&source);
        let connections = own.map_or(0, |crowd| crowd.connections);
        let handshakes = own.map_or(0, |crowd| crowd.handshakes.len());
        let tired = own.and_then(|crowd| {
            let (key, since) = crowd.handshakes.first_key_value()?;
            (now.saturating_since(*since) >= config.handshake_grace).then_some(*key)
        });
        let share = config.handshakes_per_source_max;
        if connections >= config.connections_per_source_max || handshakes >= share {
            return tired.map(Some).ok_or(NoPlace::Source);
        }
        if handshakes >= share.div_ceil(2) && tired.is_some() {
            return Ok(tired);
        }
        if self.handshakes < config.handshakes_max {
            return Ok(None);
        }
        self.by_handshakes
            .last()
            .filter(|(most, _)| *most > handshakes)
            .and_then(|(_, largest)| self.by_source.get(largest)?.handshakes.first_key_value())
            .map(|(key, _)| *key)
            .or(tired)
            .map(Some)
            .ok_or(NoPlace::Handshakes)
    }

    /// Records a new connection at the start of its handshake.
    pub(super) fn begin(&mut self, now: Instant, source: SourceKey, key: Key) {
        let crowd = self.by_source.entry(source).or_default();
        crowd.connections = crowd.connections.saturating_add(1);
        let before = crowd.handshakes.len();
        if crowd.handshakes.insert(key, now).is_none() {
            self.handshakes = self.handshakes.saturating_add(1);
            self.by_handshakes.remove(&(before, source));
            self.by_handshakes
                .insert((before.saturating_add(1), source));
        }
    }

    /// Records the end of a handshake, successful or not.
    pub(super) fn end_handshake(&mut self, source: SourceKey, key: Key) {
        let Some(crowd) = self.by_source.get_mut(&source) else {
            return;
        };
        let before = crowd.handshakes.len();
        if crowd.handshakes.remove(&key).is_some() {
            self.handshakes = self.handshakes.saturating_sub(1);
            self.by_handshakes.remove(&(before, source));
            if before > 1 {
                self.by_handshakes
                    .insert((before.saturating_sub(1), source));
            }
        }
    }

    /// Records a closed connection.
    pub(super) fn leave(&mut self, source: SourceKey, key: Key) {
        self.end_handshake(source, key);
        if let Some(crowd) = self.by_source.get_mut(&source) {
            crowd.connections = crowd.connections.saturating_sub(1);
            if crowd.connections == 0 {
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
    fn silent_connections_of_many_sources_keep_nobody_out() {
        let (config, mut crowds) = (config(), Crowds::default());
        for key in 0..8 {
            let source = source(u8::try_from(key % 2).unwrap());
            assert_eq!(crowds.judge(NOW, source, &config), Ok(None));
            crowds.begin(NOW, source, Key(key));
        }
        // Two sources have four each: the oldest of one of them.
        assert_eq!(crowds.judge(NOW, source(9), &config), Ok(Some(Key(1))));
        crowds.leave(source(1), Key(1));
        crowds.begin(NOW, source(9), Key(8));
        assert_eq!(crowds.judge(NOW, source(8), &config), Ok(Some(Key(0))));
        // A source with as many as the largest evicts none of another source.
        crowds.leave(source(0), Key(0));
        crowds.begin(NOW, source(8), Key(9));
        assert_eq!(
            crowds.judge(NOW, source(0), &config),
            Err(NoPlace::Handshakes)
        );
        // A second one, while the largest source has three.
        assert_eq!(crowds.judge(NOW, source(9), &config), Ok(Some(Key(3))));
    }

    #[test]
    fn a_handshake_that_has_ended_makes_room_by_itself() {
        let (config, mut crowds) = (config(), Crowds::default());
        for key in 0..8 {
            crowds.begin(NOW, source(u8::try_from(key).unwrap()), Key(key));
        }
        crowds.end_handshake(source(3), Key(3));
        assert_eq!(crowds.judge(NOW, source(9), &config), Ok(None));
        crowds.leave(source(3), Key(3));
        crowds.begin(NOW, source(9), Key(8));
        assert_eq!(crowds.judge(NOW, source(10), &config), Ok(Some(Key(8))));
        for key in 0..9 {
            crowds.leave(source(u8::try_from(key).unwrap()), Key(key));
        }
        crowds.leave(source(9), Key(8));
        assert!(crowds.by_source.is_empty() && crowds.by_handshakes.is_empty());
        assert_eq!(crowds.handshakes, 0);
    }

    #[test]
    fn the_share_of_a_source_holds_whatever_is_free() {
        let (mut config, mut crowds) = (config(), Crowds::default());
        for key in 0..4 {
            crowds.begin(NOW, source(1), Key(key));
        }
        assert_eq!(crowds.judge(NOW, source(1), &config), Err(NoPlace::Source));
        crowds.end_handshake(source(1), Key(0));
        assert_eq!(crowds.judge(NOW, source(1), &config), Ok(None));
        config.connections_per_source_max = 4;
        assert_eq!(crowds.judge(NOW, source(1), &config), Err(NoPlace::Source));
    }

    #[test]
    fn within_a_source_the_oldest_gives_way_once_its_grace_is_over() {
        let (config, mut crowds) = (config(), Crowds::default());
        let late = NOW + config.handshake_grace;
        let early = NOW + config.handshake_grace / 2;
        crowds.begin(NOW, source(1), Key(0));
        assert_eq!(
            crowds.judge(late, source(1), &config),
            Ok(None),
            "one of four"
        );
        crowds.begin(early, source(1), Key(1));
        assert_eq!(crowds.judge(early, source(1), &config), Ok(None));
        assert_eq!(crowds.judge(late, source(1), &config), Ok(Some(Key(0))));
        for key in 2..4 {
            crowds.begin(early, source(1), Key(key));
        }
        assert_eq!(
            crowds.judge(early, source(1), &config),
            Err(NoPlace::Source)
        );
        assert_eq!(crowds.judge(late, source(1), &config), Ok(Some(Key(0))));
        crowds.leave(source(1), Key(0));
        // The next oldest still has its grace.
        assert_eq!(crowds.judge(late, source(1), &config), Ok(None));
        crowds.begin(late, source(1), Key(4));
        assert_eq!(crowds.judge(late, source(1), &config), Err(NoPlace::Source));
        // At the total limit, the largest source evicts its own.
        for (number, key) in (2..6).zip(5..) {
            crowds.begin(late, source(number), Key(key));
        }
        let mut few = config;
        few.handshakes_per_source_max = 100;
        let end = late + config.handshake_grace;
        assert_eq!(
            crowds.judge(late, source(1), &few),
            Err(NoPlace::Handshakes)
        );
        assert_eq!(crowds.judge(end, source(1), &few), Ok(Some(Key(1))));
    }
}
