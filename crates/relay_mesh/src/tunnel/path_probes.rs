//! Probes of a path after a tunnel has moved to it.
//!
//! QUIC counts packets in flight on the old path until a probe timeout, which doubles with each
//! silent one: it may send nothing on the new path for seconds. So until an acknowledgement arrives
//! from the new path, some packets exceed the congestion window, each after twice the wait before.

use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;
use std::sync::Arc;

use super::quic::StdInstant;
use quinn_proto::RttEstimator;
use quinn_proto::congestion::{Controller, ControllerFactory, CubicConfig};
use wire::Instant;

#[derive(Debug, Default)]
pub(super) struct PathProbes {
    allowance: Arc<ProbeAllowance>,
    /// Time of the next probe, and the wait after it.
    next: Option<(Instant, Duration)>,
}

/// State shared with the connection's congestion controller.
#[derive(Debug, Default)]
pub(super) struct ProbeAllowance {
    /// Packets that may exceed the window.
    packets: AtomicU32,
    is_answered: AtomicBool,
}

impl PathProbes {
    pub(super) fn controllers(&self) -> Arc<dyn ControllerFactory + Send + Sync> {
        Arc::new(Controllers(Arc::clone(&self.allowance)))
    }

    /// Starts with a probe that is due now.
    pub(super) fn begin(&mut self, now: Instant) {
        self.allowance.is_answered.store(false, Ordering::Relaxed);
        self.next = Some((now, FIRST_WAIT));
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.next.map(|(at, _)| at)
    }

    pub(super) fn is_time(&mut self, now: Instant) -> bool {
        let Some((at, wait)) = self.next else {
            return false;
        };
        if self.allowance.is_answered.load(Ordering::Relaxed) {
            self.next = None;
            return false;
        }
        if now < at {
            return false;
        }
        let longer = wait.saturating_mul(2);
        self.next = (longer <= LAST_WAIT).then_some((now + wait, longer));
        self.allowance.packets.store(PACKETS, Ordering::Relaxed);
        true
    }
}

struct Controllers(Arc<ProbeAllowance>);

impl ControllerFactory for Controllers {
    fn build(self: Arc<Self>, now: StdInstant, mtu: u16) -> Box<dyn Controller> {
        Box::new(ProbingController {
            inner: Arc::new(CubicConfig::default()).build(now, mtu),
            allowance: Arc::clone(&self.0),
        })
    }
}

/// CUBIC (RFC 9438), with an allowance of a few packets above its window.
struct ProbingController {
    inner: Box<dyn Controller>,
    allowance: Arc<ProbeAllowance>,
}

impl Controller for ProbingController {
    fn on_sent(&mut self, now: StdInstant, bytes: u64, last: u64) {
        let packets = &self.allowance.packets;
        let left = packets.load(Ordering::Relaxed).saturating_sub(1);
        packets.store(left, Ordering::Relaxed);
        self.inner.on_sent(now, bytes, last);
    }

    fn on_ack(
        &mut self,
        now: StdInstant,
        sent: StdInstant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.allowance.packets.store(0, Ordering::Relaxed);
        self.allowance.is_answered.store(true, Ordering::Relaxed);
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(
        &mut self,
        now: StdInstant,
        in_flight: u64,
        app_limited: bool,
        largest: Option<u64>,
    ) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_congestion_event(
        &mut self,
        now: StdInstant,
        sent: StdInstant,
        is_persistent: bool,
        lost: u64,
    ) {
        self.inner
            .on_congestion_event(now, sent, is_persistent, lost);
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.inner.on_mtu_update(mtu);
    }

    fn window(&self) -> u64 {
        match self.allowance.packets.load(Ordering::Relaxed) {
            0 => self.inner.window(),
            // Above 2^32 nothing is paced either.
            _ => u64::MAX >> 1,
        }
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            inner: self.inner.clone_box(),
            allowance: Arc::clone(&self.allowance),
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Packets per probe, so that one random loss does not look like silence.
const PACKETS: u32 = 2;
/// Wait after the first probe; doubled each time.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// Longest wait: five probes within 1.5 s.
const LAST_WAIT: Duration = Duration::from_millis(1_600);
