//! The hub compared with NATS and Redis: `benches/peers_hub`.

use crate::comparison::Comparison;
use crate::goal::Bound::{AtMost, TimesLess, TimesMore};
use crate::goal::{Bound, Goal};

/// The comparison.
pub const COMPARISON: Comparison = Comparison {
    name: "hub",
    goals: &GOALS,
    shown: &[],
    stacks: &[OURS, NATS, SYNC, REDIS, "floor"],
    peer: Some(NATS),
    summary: &SUMMARY,
    packages: &["async-nats", "redis"],
    method: "Medians of {load_rounds} interleaved rounds of 1 s for each case and stack, with fresh folders; 128 bytes \
             of payload; each server is a process on loopback, and clients are threads of one other process. \
             Tickwire has TLS 1.3 in every case, so without `_tls` its peers save that work. `nats` syncs every two \
             minutes, `nats-sync` has `sync_interval: always`, `redis` has `appendfsync always`, `floor` is a bare \
             `fdatasync` of 128 bytes in a file of zeros",
};

const OURS: &str = "tickwire";
/// NATS with its default sync.
const NATS: &str = "nats";
/// NATS that syncs before each acknowledgement.
const SYNC: &str = "nats-sync";
/// Redis that syncs before each answer.
const REDIS: &str = "redis";

/// The numbers are those of the design. A factor of 0.6 is 1.67 times less.
const GOALS: [Goal; 16] = [
    goal("H1", "call1_tls", "p50_us", TimesLess(1.67, &[NATS])),
    goal("H1", "call1", "p50_us", TimesLess(1.67, &[NATS])),
    goal("H2", "call256_tls", "per_s", TimesMore(2.0, &[NATS])),
    goal("H2", "call256", "per_s", TimesMore(2.0, &[NATS])),
    goal("H4", "fanout100_tls", "per_s", TimesMore(2.0, &[NATS])),
    goal("H4", "fanout100", "per_s", TimesMore(2.0, &[NATS])),
    goal("H5", "mail1024_tls", "per_s", TimesMore(50.0, &[SYNC])),
    goal("H5", "mail1024_tls", "per_s", TimesMore(5.0, &[REDIS])),
    goal("H5", "mail1024_tls", "per_s", TimesMore(1.5, &[NATS])),
    goal("H6", "mail64", "p50_us", AtMost(2_000.0)),
    goal("H6", "mail1024", "p50_us", AtMost(5_000.0)),
    goal("H6", "mail64", "p99_of_p50", AtMost(5.0)),
    goal("H7", "mailbox200", "p50_us", AtMost(500.0)),
    goal("H9", "kv_watch", "p50_us", AtMost(60.0)),
    goal("H9", "kv_watch_disk", "p50_us", Bound::Over(100.0, "floor")),
    goal("H12", "count", "p50_us", AtMost(0.05)),
];

const fn goal(id: &'static str, case: &'static str, metric: &'static str, bound: Bound) -> Goal {
    Goal {
        id,
        stack: OURS,
        case,
        metric,
        bound,
    }
}

const SUMMARY: [[&str; 2]; 11] = [
    ["call1", "p50_us"],
    ["call1_tls", "p50_us"],
    ["call256", "per_s"],
    ["call256_tls", "per_s"],
    ["fanout100_tls", "per_s"],
    ["mail1", "p50_us"],
    ["mail64", "p50_us"],
    ["mail1024", "per_s"],
    ["mailbox200", "p50_us"],
    ["kv_watch", "p50_us"],
    ["count", "p50_us"],
];
