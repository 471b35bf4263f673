//! How many connections each source has, and who makes room when all places are taken.

use std::collections::{BTreeMap, BTreeSet};

use wire::SourceKey;

use super::config::StreamConfig;
use super::table::{Key, NoPlace};

/// The accepted connections, counted by source.
#[derive(Debug, Default)]
pub(super) struct Crowds {
    by_source: BTreeMap<SourceKey, Crowd>,
    /// Sources with handshakes that run, those with the most last.
    by_handshakes: BTreeSet<(usize, SourceKey)>,
    /// Handshakes that run, all together.
    handshakes: usize,
}

/// What one source has.
#[derive(Debug, Default)]
struct Crowd {
    connections: usize,
    /// Handshakes that run, the oldest first.
    handshakes: BTreeSet<Key>,
}

impl Crowds {
    /// Judges whether `source` may have one more, and whose handshake is dropped for it, if any.
    ///
    /// Where as many run as may, the oldest of the source that has the most makes room for one that
    /// has fewer: whoever holds places and says nothing keeps nobody out, and a handshake that is at
    /// work is through before it is the oldest.
    pub(super) fn judge(
        &self,
        source: SourceKey,
        config: &StreamConfig,
    ) -> Result<Option<Key>, NoPlace> {
        let own = self.by_source.get(&source);
        let connections = own.map_or(0, |crowd| crowd.connections);
        let handshakes = own.map_or(0, |crowd| crowd.handshakes.len());
        if connections >= config.connections_per_source_max
            || handshakes >= config.handshakes_per_source_max
        {
            return Err(NoPlace::Source);
        }
        if self.handshakes < config.handshakes_max {
            return Ok(None);
        }
        self.by_handshakes
            .last()
            .filter(|(most, _)| *most > handshakes)
            .and_then(|(_, largest)| self.by_source.get(largest)?.handshakes.first().copied())
            .map(Some)
            .ok_or(NoPlace::Handshakes)
    }

    /// Notes a connection whose handshake begins.
    pub(super) fn begin(&mut self, source: SourceKey, key: Key) {
        let crowd = self.by_source.entry(source).or_default();
        crowd.connections = crowd.connections.saturating_add(1);
        let before = crowd.handshakes.len();
        if crowd.handshakes.insert(key) {
            self.handshakes = self.handshakes.saturating_add(1);
            self.by_handshakes.remove(&(before, source));
            self.by_handshakes
                .insert((before.saturating_add(1), source));
        }
    }

    /// Notes that a handshake has ended, well or not.
    pub(super) fn end_handshake(&mut self, source: SourceKey, key: Key) {
        let Some(crowd) = self.by_source.get_mut(&source) else {
            return;
        };
        let before = crowd.handshakes.len();
        if crowd.handshakes.remove(&key) {
            self.handshakes = self.handshakes.saturating_sub(1);
            self.by_handshakes.remove(&(before, source));
            if before > 1 {
                self.by_handshakes
                    .insert((before.saturating_sub(1), source));
            }
        }
    }

    /// Notes that a connection is gone.
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
            assert_eq!(crowds.judge(source, &config), Ok(None));
            crowds.begin(source, Key(key));
        }
        // One of two that have four each, and the oldest of it.
        assert_eq!(crowds.judge(source(9), &config), Ok(Some(Key(1))));
        crowds.leave(source(1), Key(1));
        crowds.begin(source(9), Key(8));
        assert_eq!(crowds.judge(source(8), &config), Ok(Some(Key(0))));
        // Who has as much as the largest gets no more at the cost of others.
        crowds.leave(source(0), Key(0));
        crowds.begin(source(8), Key(9));
        assert_eq!(crowds.judge(source(0), &config), Err(NoPlace::Handshakes));
        // It may have two where the largest has three.
        assert_eq!(crowds.judge(source(9), &config), Ok(Some(Key(3))));
    }

    #[test]
    fn a_handshake_that_has_ended_makes_room_by_itself() {
        let (config, mut crowds) = (config(), Crowds::default());
        for key in 0..8 {
            crowds.begin(source(u8::try_from(key).unwrap()), Key(key));
        }
        crowds.end_handshake(source(3), Key(3));
        assert_eq!(crowds.judge(source(9), &config), Ok(None));
        crowds.leave(source(3), Key(3));
        crowds.begin(source(9), Key(8));
        assert_eq!(crowds.judge(source(10), &config), Ok(Some(Key(8))));
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
            crowds.begin(source(1), Key(key));
        }
        assert_eq!(crowds.judge(source(1), &config), Err(NoPlace::Source));
        crowds.end_handshake(source(1), Key(0));
        assert_eq!(crowds.judge(source(1), &config), Ok(None));
        config.connections_per_source_max = 4;
        assert_eq!(crowds.judge(source(1), &config), Err(NoPlace::Source));
    }
}
