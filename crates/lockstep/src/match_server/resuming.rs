//! Going on with a match that another participant hosted.

use wire::{Instant, MatchId, Seed};

use super::MatchServer;
use crate::chain::{CHAIN_LEN, Chain, ChainReader};
use crate::config::{Config, StartPolicy};
use crate::event::ConfigError;
use crate::input::Input;
use crate::tick::Tick;

/// What a participant holds of the ticks that are closed.
#[derive(Debug)]
pub(crate) struct Past<'a> {
    pub(crate) chain: &'a Chain,
    /// Past the last closed tick: with its inputs, and the hash over all.
    pub(crate) reader: ChainReader,
}

impl<I: Input> MatchServer<I> {
    /// Makes a match that goes on after the ticks of `past`: it gathers its players, closes the next
    /// tick a tick's length after it is started by hand, and serves as much of the past as is kept.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] where no such match can be played.
    pub(crate) fn resume(
        config: Config,
        (match_id, seed): (MatchId, Seed),
        now: Instant,
        past: &Past<'_>,
    ) -> Result<Self, ConfigError> {
        let mut config = config;
        config.start = StartPolicy::ByHand;
        let mut server = Self::new(config, match_id, seed, now)?;
        let end = past.reader.next();
        for tick in (end.minus(CHAIN_LEN).0..end.0).map(Tick) {
            if let Some(bundle) = past.chain.get(tick) {
                server.chain.put(tick, bundle);
            }
        }
        server.end = end;
        server.base = end;
        server.before.copy_from(past.reader.row());
        server
            .reader
            .go_on_from(end, past.reader.row(), past.reader.log());
        let step = server.step_after(end);
        server.ledger.begin_at(step);
        server.skip_show();
        Ok(server)
    }

    /// First hash step at `tick` or later.
    pub(super) fn step_after(&self, tick: Tick) -> u32 {
        tick.0.div_ceil(self.config.hash_interval.get().into())
    }
}
