//! Wall clocks that step, read 1970, and are corrected.

use std::time::Duration;

use bytes::Bytes;
use hub::{HubEvent, HubStatus, MailSeq, NodeEvent};
use wire::ClientId;

use crate::world::{Power, World};

const PLAYER: ClientId = ClientId(7);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY_MS: u64 = 86_400_000;

/// Sends a mail with an hour to live.
fn send(world: &mut World) {
    let now = world.now;
    world
        .node(0)
        .mail(now, PLAYER, Bytes::from_static(b"kept"), HOUR)
        .unwrap();
}

fn doubts(world: &World) -> usize {
    let is_doubt = |event: &&HubEvent| matches!(event, HubEvent::ClockRejected { .. });
    world.hub_events.iter().filter(is_doubt).count()
}

/// Runs for `secs`, and reads the clock every second.
fn run_secs(world: &mut World, secs: u64) {
    for _ in 0..secs {
        world.run_ms(1_000);
        world.read_clock();
    }
}

#[test]
fn hub_8_a_clock_step_neither_drops_mail_nor_extends_its_life() {
    for (step, back) in [(DAY_MS, false), (DAY_MS, true), (40 * 365 * DAY_MS, false)] {
        let mut world = World::joined(1, 1);
        send(&mut world);
        run_secs(&mut world, 5);
        assert_eq!(world.hub().store.mail_count(), 1);
        let right = world.unix_ms;
        world.unix_ms = if back { right - step } else { right + step };
        run_secs(&mut world, 60);
        send(&mut world);
        run_secs(&mut world, 60);
        assert_eq!(world.hub().store.mail_count(), 2, "{step} back: {back}");
        assert_eq!(doubts(&world), 1, "said once");
        world.unix_ms = right;
        run_secs(&mut world, 3_500);
        assert_eq!(world.hub().store.mail_count(), 1, "the first had its hour");
        run_secs(&mut world, 100);
        assert_eq!(world.hub().store.mail_count(), 0, "and the second");
    }
}

#[test]
fn clock_step_wait_is_the_time_until_mail_expires_by_a_stepped_clock() {
    let mut world = World::new(1, 1);
    world.hub_config.clock_step_wait = Duration::from_secs(100);
    world.start_hub();
    world.start_node(0, hub::NodeConfig::default());
    world.run_ms(1_500);
    send(&mut world);
    run_secs(&mut world, 5);
    world.unix_ms += DAY_MS;
    run_secs(&mut world, 95);
    assert_eq!(world.hub().store.mail_count(), 1);
    run_secs(&mut world, 15);
    assert_eq!(world.hub().store.mail_count(), 0);
}

#[test]
fn hub_8_a_hub_with_a_clock_behind_its_log_accepts_mail_once_it_is_set() {
    for wrong in [0, 1_600_000_001_000] {
        let mut world = World::joined(1, 1);
        send(&mut world);
        run_secs(&mut world, 70);
        let right = world.unix_ms;
        world.unix_ms = wrong;
        world.crash_hub(Power::Cut, Duration::from_millis(100));
        world.run_ms(2_000);
        world.take_events();
        send(&mut world);
        run_secs(&mut world, 30);
        assert_eq!(world.hub().store.mail_count(), 1, "nothing is taken");
        let stored = |world: &mut World| {
            let events = world.take_events();
            let is_stored =
                |(_, event): &&(usize, NodeEvent)| matches!(event, NodeEvent::MailStored(_));
            events.iter().filter(is_stored).count()
        };
        assert_eq!(stored(&mut world), 0);
        assert_eq!(doubts(&world), 1, "{wrong}: said once");
        world.unix_ms = right;
        run_secs(&mut world, 30);
        assert_eq!(stored(&mut world), 1, "{wrong}");
        assert_eq!(world.hub().store.mail_count(), 2, "and nothing is dropped");
    }
}

const YEAR_MS: u64 = 365 * DAY_MS;

fn aheads(world: &World) -> usize {
    let is_ahead = |event: &&HubEvent| matches!(event, HubEvent::ClockAhead { .. });
    world.hub_events.iter().filter(is_ahead).count()
}

/// A world with one mail for `PLAYER` that expires in an hour, and its hub restarted by `power` with
/// a clock a year ahead.
fn restarted_ahead(power: Power) -> World {
    let mut world = World::joined(1, 1);
    send(&mut world);
    run_secs(&mut world, 70);
    world.unix_ms += YEAR_MS;
    world.crash_hub(power, Duration::from_millis(100));
    world.run_ms(2_000);
    world
}

#[test]
fn hub_8_a_hub_that_starts_a_year_ahead_loses_no_mail_at_a_claim() {
    let mut world = restarted_ahead(Power::Cut);
    run_secs(&mut world, 60);
    assert_eq!(world.hub().store.mail_count(), 1);
    assert_eq!(aheads(&world), 1);
    assert_eq!(world.hub().machine.health().status, HubStatus::Degraded);
    world.take_events();
    let now = world.now;
    world
        .node(0)
        .claim(now, PLAYER, MailSeq(0), Bytes::new())
        .unwrap();
    run_secs(&mut world, 5);
    let events = world.take_events();
    let is_mail = |(_, event): &&(usize, NodeEvent)| matches!(event, NodeEvent::Mail { .. });
    assert_eq!(events.iter().filter(is_mail).count(), 1);
    // Once the clock is set, mail expires by it at once.
    world.unix_ms -= YEAR_MS;
    run_secs(&mut world, 5);
    assert_eq!(world.hub().machine.health().status, HubStatus::Ok);
    assert_eq!(world.hub().store.mail_count(), 1);
    run_secs(&mut world, 3_600);
    assert_eq!(world.hub().store.mail_count(), 0, "its hour is over");
}

#[test]
fn hub_8_mail_expires_after_an_hour_of_running_over_restarts() {
    let mut world = restarted_ahead(Power::Cut);
    for start in 0..3 {
        run_secs(&mut world, 1_130);
        assert_eq!(world.hub().store.mail_count(), 1, "start {start}");
        world.crash_hub(Power::Cut, Duration::from_millis(100));
        world.run_ms(2_000);
    }
    // Up to a minute of each start is not on disk.
    run_secs(&mut world, 500);
    assert_eq!(world.hub().store.mail_count(), 0);
    assert_eq!(world.hub().machine.health().status, HubStatus::Ok);
    // The time that is believed now is the log's newest.
    world.crash_hub(Power::Cut, Duration::from_millis(100));
    world.run_ms(2_000);
    run_secs(&mut world, 5);
    assert_eq!(world.hub().machine.health().status, HubStatus::Ok);
}
