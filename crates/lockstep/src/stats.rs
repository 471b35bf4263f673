//! Counters of machines.

use core::time::Duration;

use crate::stepper::StepAction;

/// Counters of a [`MatchServer`](crate::MatchServer); they never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Ticks closed.
    pub ticks_closed: u64,
    /// Of these, ticks that waited for players past their nominal close.
    pub ticks_delayed: u64,
    /// Of these, ticks lengthened for a lagging player.
    pub ticks_stretched: u64,
    /// Bundles encoded: one per tick, for all clients.
    pub bundles_encoded: u64,
    /// Bundles put into datagrams, copies included.
    pub bundles_sent: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Datagrams filled with old ticks for a lagging client.
    pub catch_up_datagrams: u64,
    /// Inputs substituted for seated players.
    pub inputs_substituted: u64,
    /// Inputs that arrived after their tick closed.
    pub inputs_late: u64,
    /// Inputs for ticks too far ahead.
    pub inputs_early: u64,
    /// Inputs forwarded before their ticks closed, each once for all clients.
    pub inputs_forwarded: u64,
    /// Players' state hashes compared, with the server's or with other players'.
    pub hashes_compared: u64,
    /// Players' state hashes that did not arrive in time.
    pub hashes_missing: u64,
    /// State hashes of ticks that cannot be compared.
    pub hashes_refused: u64,
    /// Bisection questions sent, with repetitions and notifications.
    pub bisect_questions: u64,
    /// Valid answers to them.
    pub bisect_answers: u64,
    /// Answers that were not expected, or contradict what was reported.
    pub bisect_refused: u64,
    /// Times the clock was set back because the process had been paused.
    pub pauses: u64,
    /// Datagrams dropped: malformed.
    pub dropped_malformed: u64,
    /// Datagrams dropped: sender is no player.
    pub dropped_unknown_peer: u64,
    /// Datagrams with an acknowledgement outside the chain.
    pub dropped_ack: u64,
    /// Datagrams with inputs coded against one no longer held.
    pub dropped_reference: u64,
    /// Counters of spectators.
    pub spectators: SpectatorStats,
}

/// Counters of spectators; they never decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpectatorStats {
    /// Datagrams with turns.
    pub turns_sent: u64,
    /// Datagrams filled with old ticks for a lagging spectator.
    pub catch_up_datagrams: u64,
    /// Snapshot transfers begun.
    pub snapshots_begun: u64,
    /// Datagrams dropped: malformed, or of a kind that spectators do not send.
    pub dropped_malformed: u64,
    /// Datagrams with an acknowledgement outside the shown ticks.
    pub dropped_ack: u64,
    /// Datagrams with inputs, which were dropped: spectators do not play.
    pub dropped_inputs: u64,
}

/// Counters of a [`SpectatorRelay`](crate::SpectatorRelay).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpectatorRelayStats {
    /// Ticks forwarded.
    pub ticks: u64,
    /// Bundles that arrived again.
    pub bundles_repeated: u64,
    /// Bundles too far ahead to be kept.
    pub bundles_early: u64,
    /// Snapshots received.
    pub snapshots: u64,
    /// Datagrams sent, upstream and downstream.
    pub datagrams_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Datagrams from the server dropped: malformed.
    pub dropped_malformed: u64,
    /// Datagrams dropped: sender is not a child.
    pub dropped_unknown_peer: u64,
    /// Datagrams dropped: numbers outside every window.
    pub dropped_window: u64,
    /// Counters of the children.
    pub children: SpectatorStats,
}

/// Counters of a [`ClientPeer`](crate::ClientPeer).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Closed ticks given to the game, with rollback or as turns.
    pub turns: u64,
    /// Steps that [`ClientPeer::next_step`](crate::ClientPeer::next_step) requested with rollback:
    /// predicted, final and repeated ones.
    pub steps: u64,
    /// Saves that it requested.
    pub saves: u64,
    /// Rollbacks.
    pub loads: u64,
    /// Inputs stamped.
    pub inputs: u64,
    /// Inputs that the server substituted.
    pub substituted: u64,
    /// Bundles that arrived again.
    pub bundles_repeated: u64,
    /// Bundles too far ahead to be kept.
    pub bundles_early: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Current input delay, in ticks.
    pub input_delay: u8,
    /// Current playout delay.
    pub playout: Duration,
    /// Bisection answers sent.
    pub bisect_answers: u64,
    /// Bisection questions dropped because the queue was full.
    pub bisect_dropped: u64,
    /// Times the tick clock jumped by more than 15 ticks.
    pub clock_jumps: u64,
    /// Datagrams dropped: not of this format.
    pub dropped_malformed: u64,
    /// Datagrams dropped: not from the server.
    pub dropped_unknown_peer: u64,
    /// Datagrams with numbers outside every window.
    pub dropped_window: u64,
    /// How long before its tick's close the newest input arrived, in quarter ticks, as the server
    /// said last; `None` until it does.
    pub slack_quarter_ticks: Option<i8>,
}

impl ClientStats {
    pub(crate) const fn on_step(&mut self, next: StepAction) {
        let count = match next {
            StepAction::Save(_) => &mut self.saves,
            StepAction::Load(_) => &mut self.loads,
            StepAction::Advance { .. } => &mut self.steps,
            StepAction::Settled(_) => return,
        };
        *count = count.saturating_add(1);
    }
}
