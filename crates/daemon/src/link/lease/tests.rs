use crypto::{AddressList, Identity, Ring, ServerKeys};
use wire::{Seat, Team};

use super::*;

const INSTANCE: InstanceId = InstanceId(7);
const START: Instant = Instant::from_millis(1_000);

#[test]
fn an_instance_registers_on_join_and_then_renews() {
    let mut lease = Harness::lease();
    assert_eq!(lease.poll_call(START), None, "no link is up");
    lease.handle_joined();
    assert_eq!(kind(&mut lease, START), REGISTER);
    assert_eq!(lease.poll_call(START), None, "one call at a time");
    answer(&mut lease, START, &renewed(30, 10));
    assert_eq!(lease.poll_event(), Some(LeaseEvent::Registered));
    assert_eq!(lease.poll_timeout(), Some(START + secs(10)));
    assert_eq!(lease.poll_call(START + secs(9)), None);
    assert_eq!(kind(&mut lease, START + secs(10)), HEARTBEAT);
}

#[test]
fn without_a_renewal_the_instance_ends() {
    let mut lease = Harness::registered();
    // The lease counts from when the call was sent, not from when it was answered.
    let sent = START + secs(10);
    assert_eq!(kind(&mut lease, sent), HEARTBEAT);
    answer(&mut lease, sent + secs(4), &renewed(30, 10));
    let mut now = sent + secs(10);
    while now < sent + secs(30) {
        lease.handle_timeout(now);
        assert_eq!(lease.end(), None);
        if lease.poll_call(now).is_some() {
            lease.handle_answer(now, Err(CallError::Unreachable));
        }
        now += Duration::from_millis(100);
    }
    lease.handle_timeout(sent + secs(30));
    assert_eq!(lease.end(), Some(LeaseEnd::Expired));
    assert_eq!(lease.poll_timeout(), None);
    assert_eq!(lease.poll_call(sent + secs(40)), None);
}

#[test]
fn a_match_may_finish_without_a_lease() {
    let mut lease = Harness::registered();
    lease.take(assign(1, 1));
    lease.take(assign(2, 1));
    lease.entered(id(1));
    lease.handle_hub_down();
    let over = START + secs(30);
    lease.handle_timeout(over);
    assert_eq!(lease.poll_event(), Some(LeaseEvent::CutOff));
    assert_eq!(
        action(&lease, &assign(3, 1)),
        RequestAction::Answer(Verdict::Full)
    );
    lease.handle_timeout(over + secs(599));
    assert_eq!((lease.end(), lease.poll_event()), (None, None));
    lease.ended(id(1), b"won");
    // Due at once: no remaining match was entered.
    assert_eq!(lease.poll_timeout(), Some(over));
    lease.handle_timeout(over + secs(599));
    assert_eq!(lease.end(), Some(LeaseEnd::Expired));
}

#[test]
fn an_expired_lease_is_renewed_when_the_hub_returns() {
    let mut lease = Harness::registered();
    lease.take(assign(1, 1));
    lease.entered(id(1));
    lease.handle_hub_down();
    lease.handle_timeout(START + secs(30));
    assert_eq!(lease.poll_event(), Some(LeaseEvent::CutOff));
    let back = START + secs(60);
    lease.handle_joined();
    assert_eq!(kind(&mut lease, back), REGISTER);
    answer(&mut lease, back, &renewed(30, 10));
    assert_eq!(lease.poll_event(), Some(LeaseEvent::Registered));
    assert_eq!(
        action(&lease, &assign(3, 1)),
        RequestAction::Assign(assign(3, 1))
    );
    lease.handle_timeout(back + secs(29));
    assert_eq!((lease.end(), lease.poll_event()), (None, None));
}

#[test]
fn a_retired_instance_finishes_its_matches_without_reports() {
    let mut lease = Harness::registered();
    lease.take(assign(1, 1));
    lease.entered(id(1));
    let now = START + secs(1);
    assert_eq!(kind(&mut lease, now), HEARTBEAT);
    answer(&mut lease, now, &Reply::Retired);
    assert_eq!(lease.poll_event(), Some(LeaseEvent::CutOff));
    assert_eq!((lease.end(), lease.poll_call(now + secs(60))), (None, None));
    assert_eq!(lease.poll_timeout(), Some(now + secs(600)));
    lease.ended(id(1), b"won");
    lease.handle_timeout(now + secs(60));
    assert_eq!(lease.end(), Some(LeaseEnd::Retired));
}

#[test]
fn an_unregistered_instance_ends_after_the_boot_timeout() {
    let mut lease = Harness::lease();
    lease.handle_timeout(START + secs(59));
    assert_eq!(lease.end(), None);
    assert_eq!(lease.poll_timeout(), Some(START + secs(60)));
    lease.handle_timeout(START + secs(60));
    assert_eq!(lease.end(), Some(LeaseEnd::Expired));
}

#[test]
fn a_failed_call_is_retried_after_a_pause() {
    let mut lease = Harness::lease();
    lease.handle_joined();
    for error in [CallError::Unreachable, CallError::TimedOut, CallError::Busy] {
        let now = lease.calls.next_at;
        assert_eq!(kind(&mut lease, now.max(START)), REGISTER);
        lease.handle_answer(now.max(START), Err(error));
        assert_eq!(
            lease.calls.next_at,
            now.max(START) + Duration::from_millis(500)
        );
    }
    let now = lease.calls.next_at;
    assert_eq!(kind(&mut lease, now), REGISTER);
    lease.handle_answer(now, Ok(b"junk"));
    assert_eq!(lease.calls.next_at, now + Duration::from_millis(500));
}

#[test]
fn hub_and_matchmaker_restarts_cause_a_new_registration() {
    for come_back in [
        |lease: &mut Lease| lease.handle_matchmaker(),
        |lease: &mut Lease| {
            lease.handle_hub_down();
            assert_eq!(lease.poll_call(START + secs(1)), None);
            lease.handle_joined();
        },
        |lease: &mut Lease| {
            let key = TokenKey::generate(&mut Ring::new(), 2).unwrap();
            lease.set_token_key(key);
        },
    ] {
        let mut lease = Harness::registered();
        come_back(&mut lease);
        assert_eq!(kind(&mut lease, START + secs(1)), REGISTER);
        answer(&mut lease, START + secs(1), &renewed(30, 10));
        assert_eq!(lease.poll_event(), Some(LeaseEvent::Registered));
    }
}

#[test]
fn an_old_matchmakers_answer_is_no_registration() {
    let mut lease = Harness::lease();
    lease.handle_joined();
    assert_eq!(kind(&mut lease, START), REGISTER);
    lease.handle_matchmaker();
    answer(&mut lease, START, &renewed(30, 10));
    assert_eq!(lease.poll_event(), None);
    assert_eq!(kind(&mut lease, START), REGISTER);
}

#[test]
fn the_matchmaker_may_request_registration_or_retire_the_instance() {
    let mut lease = Harness::registered();
    assert_eq!(kind(&mut lease, START + secs(10)), HEARTBEAT);
    answer(&mut lease, START + secs(10), &Reply::Register);
    assert_eq!(kind(&mut lease, START + secs(10)), REGISTER);
    answer(&mut lease, START + secs(10), &Reply::Retired);
    assert_eq!(lease.end(), Some(LeaseEnd::Retired));

    let mut lease = Harness::lease();
    lease.handle_joined();
    assert_eq!(kind(&mut lease, START), REGISTER);
    answer(&mut lease, START, &Reply::Refused(RefuseReason::Full));
    assert_eq!(lease.end(), None, "it retries later");
    let now = START + secs(5);
    assert_eq!(kind(&mut lease, now), REGISTER);
    let refused = Reply::Refused(RefuseReason::OtherApp);
    answer(&mut lease, now, &refused);
    let end = LeaseEnd::Refused(RefuseReason::OtherApp);
    assert_eq!(lease.end(), Some(end));
}

#[test]
fn a_match_is_accepted_once_and_if_it_fits() {
    let mut lease = Harness::registered();
    let first = assign(1, 3);
    assert_eq!(action(&lease, &first), RequestAction::Assign(first.clone()));
    lease.take(first.clone());
    assert_eq!(
        action(&lease, &first),
        RequestAction::Answer(Verdict::Taken)
    );
    assert_eq!(
        action(&lease, &assign(2, 2)),
        RequestAction::Answer(Verdict::Full)
    );
    assert_eq!(
        action(&lease, &assign(2, 1)),
        RequestAction::Assign(assign(2, 1))
    );
    let mut other = assign(3, 1);
    other.instance = InstanceId(8);
    let verdict = RequestAction::Answer(Verdict::OtherInstance);
    assert_eq!(action(&lease, &other), verdict);
    assert_eq!(lease.handle_request(b"junk"), RequestAction::Malformed);
    lease.set_intake(Intake::Closed);
    assert_eq!(
        action(&lease, &assign(2, 1)),
        RequestAction::Answer(Verdict::Full)
    );
}

#[test]
fn a_registration_always_fits_its_record() {
    let mut lease = Harness::with_capacity(u16::MAX);
    let mut taken = 0_u8;
    while let RequestAction::Assign(assign) = action(&lease, &assign(taken, 256)) {
        lease.take(assign);
        taken += 1;
    }
    assert!(taken > 10, "{taken}");
    lease.handle_joined();
    let record = lease.poll_call(START).unwrap();
    assert!(record.len() <= RECORD_BYTES_MAX, "{}", record.len());
}

#[test]
fn results_are_repeated_until_acknowledged() {
    let mut lease = Harness::registered();
    lease.take(assign(1, 2));
    lease.take(assign(2, 2));
    lease.left(id(2), ClientId(1));
    lease.left(id(2), ClientId(77));
    lease.ended(id(1), b"won");
    lease.ended(id(9), b"never was");
    let now = START + secs(1);
    assert_eq!(kind(&mut lease, now), LEFT);
    lease.handle_answer(now, Err(CallError::NodeDown));
    assert_eq!(lease.poll_call(now), None, "after a pause");
    let now = now + secs(1);
    assert_eq!(kind(&mut lease, now), LEFT);
    answer(&mut lease, now, &Reply::Noted);
    assert_eq!(kind(&mut lease, now), RESULT);
    answer(&mut lease, now, &Reply::Noted);
    assert_eq!(kind(&mut lease, now), HEARTBEAT, "it names what runs");
    answer(&mut lease, now, &renewed(30, 10));
    assert_eq!(lease.poll_call(now), None);
}

#[test]
fn the_first_entry_into_a_match_is_reported_at_once() {
    let mut lease = Harness::registered();
    lease.take(assign(1, 2));
    let now = START + secs(1);
    assert_eq!(lease.poll_call(now), None);
    lease.entered(id(1));
    let heartbeat = lease.poll_call(now).unwrap();
    assert_eq!(heartbeat[1], HEARTBEAT);
    assert_eq!(heartbeat.last(), Some(&1), "the flag behind the match id");
    answer(&mut lease, now, &renewed(30, 10));
    lease.entered(id(1));
    lease.entered(id(9));
    assert_eq!(lease.poll_call(now), None, "nothing new");
}

#[test]
fn the_queue_of_reports_is_bounded() {
    let mut lease = Harness::registered();
    for number in 0..2_000_u32 {
        let mut match_id = [0; 16];
        match_id[..4].copy_from_slice(&number.to_be_bytes());
        let mut assign = assign(0, 1);
        assign.match_id = MatchId(match_id);
        lease.take(assign);
        lease.ended(MatchId(match_id), b"");
    }
    assert_eq!(lease.reports.len(), REPORTS_MAX);
    assert_eq!(lease.reports_dropped, 2_000 - REPORTS_MAX as u64);
}

#[test]
fn a_match_without_tokens_is_released() {
    let mut lease = Harness::registered();
    lease.take(assign(1, 2));
    let now = START + secs(10);
    assert_eq!(kind(&mut lease, now), HEARTBEAT);
    let reply = Reply::Renewed {
        lease: secs(30),
        heartbeat: secs(10),
        release: [id(1), id(5)].into(),
    };
    answer(&mut lease, now, &reply);
    assert_eq!(lease.poll_event(), Some(LeaseEvent::Released(id(1))));
    assert_eq!(lease.poll_event(), None);
    assert_eq!(
        action(&lease, &assign(2, 4)),
        RequestAction::Assign(assign(2, 4))
    );
}

#[test]
fn the_heartbeat_interval_is_bounded() {
    for (asked_ms, due_ms) in [(0, 100), (50, 100), (500, 500), (3_600_000, 10_000)] {
        let mut lease = Harness::lease();
        lease.handle_joined();
        assert_eq!(kind(&mut lease, START), REGISTER);
        let reply = Reply::Renewed {
            lease: secs(30),
            heartbeat: Duration::from_millis(asked_ms),
            release: Vec::new(),
        };
        answer(&mut lease, START, &reply);
        assert_eq!(lease.calls.next_at, START + Duration::from_millis(due_ms));
    }
}

#[test]
fn a_leaving_instance_reports_results_and_then_leaves() {
    let mut lease = Harness::registered();
    lease.take(assign(1, 2));
    lease.ended(id(1), b"won");
    lease.leave();
    let now = START + secs(1);
    assert_eq!(kind(&mut lease, now), RESULT);
    answer(&mut lease, now, &Reply::Noted);
    assert_eq!(kind(&mut lease, now), BYE);
    assert_eq!(lease.end(), None);
    answer(&mut lease, now, &Reply::Noted);
    assert_eq!(lease.end(), Some(LeaseEnd::Left));

    let mut lease = Harness::lease();
    lease.leave();
    assert_eq!(lease.end(), Some(LeaseEnd::Left), "the hub is unreachable");
}

/// Constructors of leases.
struct Harness;

impl Harness {
    fn lease() -> Lease {
        Self::with_capacity(4)
    }

    fn with_capacity(capacity: u16) -> Lease {
        let mut ring = Ring::new();
        let identity = Identity::generate(&mut ring).unwrap();
        let offer = Offer {
            app_id: 1,
            capacity,
            identity_keys: ServerKeys::new(&[*identity.public_key()]).unwrap(),
            addresses: AddressList::new(&["127.0.0.1:4433".parse().unwrap()]).unwrap(),
        };
        let key = TokenKey::generate(&mut ring, 1).unwrap();
        Lease::new(LeaseConfig::default(), offer, INSTANCE, key, START)
    }

    fn registered() -> Lease {
        let mut lease = Self::lease();
        lease.handle_joined();
        assert_eq!(kind(&mut lease, START), REGISTER);
        answer(&mut lease, START, &renewed(30, 10));
        assert_eq!(lease.poll_event(), Some(LeaseEvent::Registered));
        lease
    }
}

/// The kind of the next call.
fn kind(lease: &mut Lease, now: Instant) -> u8 {
    lease.poll_call(now).expect("a call is due")[1]
}

fn answer(lease: &mut Lease, now: Instant, reply: &Reply) {
    let mut bytes = Vec::new();
    reply.encode(&mut bytes);
    lease.handle_answer(now, Ok(&bytes));
}

fn renewed(lease: u64, heartbeat: u64) -> Reply {
    Reply::Renewed {
        lease: secs(lease),
        heartbeat: secs(heartbeat),
        release: Vec::new(),
    }
}

fn action(lease: &Lease, assign: &Assign) -> RequestAction {
    let mut bytes = Vec::new();
    assign.encode(&mut bytes);
    lease.handle_request(&bytes)
}

fn assign(number: u8, players: u16) -> Assign {
    Assign {
        instance: INSTANCE,
        match_id: id(number),
        players: (0..players)
            .map(|seat| Seated {
                client_id: ClientId(seat.into()),
                seat: Seat(seat),
                team: Team(0),
            })
            .collect(),
    }
}

const fn id(number: u8) -> MatchId {
    MatchId([number; 16])
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

const REGISTER: u8 = 1;
const HEARTBEAT: u8 = 2;
const RESULT: u8 = 3;
const LEFT: u8 = 4;
const BYE: u8 = 5;

#[test]
fn every_timeout_of_a_lease_has_an_effect() {
    let config = LeaseConfig {
        boot_timeout: secs(7),
        call_timeout: secs(2),
        retry_pause: secs(3),
        heartbeat_max: secs(4),
        lease_grace: secs(11),
        key_rotation: secs(60),
    };
    let mut lease = Harness::lease();
    let (offer, key) = (lease.offer.clone(), lease.keys.current().clone());
    lease = Lease::new(config, offer, INSTANCE, key, START);
    assert_eq!(lease.call_timeout(), secs(2));
    assert_eq!(lease.poll_timeout(), Some(START + secs(7)));
    lease.handle_joined();
    assert_eq!(kind(&mut lease, START), REGISTER);
    lease.handle_answer(START, Err(CallError::TimedOut));
    assert_eq!(lease.poll_timeout(), Some(START + secs(3)));
    let now = START + secs(3);
    assert_eq!(kind(&mut lease, now), REGISTER);
    answer(&mut lease, now, &renewed(30, 10));
    assert_eq!(lease.poll_timeout(), Some(now + secs(4)));
    lease.take(assign(1, 2));
    lease.entered(id(1));
    lease.handle_hub_down();
    assert_eq!(lease.poll_timeout(), Some(now + secs(30)));
    lease.handle_timeout(now + secs(30));
    assert_eq!(lease.poll_timeout(), Some(now + secs(41)));
    lease.handle_timeout(now + secs(41));
    assert_eq!(lease.end(), Some(LeaseEnd::Expired));

    let (offer, key) = (lease.offer.clone(), lease.keys.current().clone());
    let config = LeaseConfig {
        boot_timeout: secs(600),
        ..config
    };
    lease = Lease::new(config, offer, INSTANCE, key, START);
    assert_eq!(lease.poll_timeout(), Some(START + secs(60)));
}

/// Runs for `span` with a matchmaker that answers every call; returns the events.
fn live(lease: &mut Lease, now: &mut Instant, span: Duration) -> Vec<LeaseEvent> {
    let end = *now + span;
    let mut events = Vec::new();
    loop {
        lease.handle_timeout(*now);
        while lease.poll_call(*now).is_some() {
            answer(lease, *now, &renewed(30, 10));
        }
        events.extend(core::iter::from_fn(|| lease.poll_event()));
        let next = lease.poll_timeout().unwrap();
        assert!(next > *now, "a busy loop");
        if next > end {
            *now = end;
            return events;
        }
        *now = next;
    }
}

#[test]
fn mm_7_keys_rotate_daily_and_expire_with_their_last_token() {
    let mut lease = Harness::registered();
    let mut now = START;
    assert_eq!(live(&mut lease, &mut now, secs(24 * 3_600 - 2)), []);
    assert_eq!(
        live(&mut lease, &mut now, secs(2)),
        [LeaseEvent::RotateKey(1)]
    );
    // The game rejects it: nothing changes, and it is asked again a day later.
    assert_eq!(live(&mut lease, &mut now, secs(24 * 3_600 - 1)), []);
    assert_eq!(
        live(&mut lease, &mut now, secs(1)),
        [LeaseEvent::RotateKey(1)]
    );
    let key = TokenKey::generate(&mut Ring::new(), 2).unwrap();
    lease.set_token_key(key);
    // Until the matchmaker has the new key, tokens may be sealed under the old one.
    lease.handle_hub_down();
    now += secs(20);
    lease.handle_timeout(now);
    lease.handle_joined();
    assert_eq!(
        live(&mut lease, &mut now, secs(304)),
        [LeaseEvent::Registered]
    );
    assert_eq!(
        live(&mut lease, &mut now, secs(1)),
        [LeaseEvent::KeyLapsed(1)]
    );
    assert_eq!(live(&mut lease, &mut now, secs(3_600)), []);
}

#[test]
fn the_number_of_keys_in_use_is_bounded() {
    let mut lease = Harness::registered();
    lease.keys = Keys::new(lease.keys.current().clone(), Duration::ZERO, START);
    let mut now = START;
    for id in 1..4 {
        let events = live(&mut lease, &mut now, Duration::from_millis(1));
        assert_eq!(events, [LeaseEvent::RotateKey(id)]);
        let key = TokenKey::generate(&mut Ring::new(), id + 1).unwrap();
        lease.set_token_key(key);
        assert_eq!(
            live(&mut lease, &mut now, secs(304)),
            [LeaseEvent::Registered]
        );
        // The next rotation waits until the old key has expired.
        lease.handle_timeout(now + secs(1));
        now += secs(1);
        assert_eq!(lease.poll_event(), Some(LeaseEvent::KeyLapsed(id)));
        assert_eq!(lease.poll_event(), Some(LeaseEvent::RotateKey(id + 1)));
        let again = Keys::new(lease.keys.current().clone(), Duration::ZERO, now);
        lease.keys = again;
    }
    // By hand, outside the rotation: beyond an endpoint's limit the oldest key is dropped.
    for id in 5..9 {
        lease.set_token_key(TokenKey::generate(&mut Ring::new(), id).unwrap());
    }
    assert_eq!(lease.poll_event(), Some(LeaseEvent::KeyLapsed(4)));
    assert_eq!(lease.poll_event(), None);
}
