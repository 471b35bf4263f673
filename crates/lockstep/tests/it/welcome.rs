//! Welcomes with parameters that are invalid or barely playable.

use core::time::Duration;

use lockstep::message::{DecodeError, Down, decode_down};
use lockstep::{ClientConfig, ClientPeer, PeerId, Phase};
use wire::{Arrival, Instant, Seed};

/// The parameters that a server chooses in its welcome.
#[derive(Clone, Copy, Debug)]
struct MatchParameters {
    period_nanos: u32,
    input_delay: u8,
    repair: u8,
    hash_interval: u8,
}

const ORDINARY: MatchParameters = MatchParameters {
    period_nanos: 16_666_666,
    input_delay: 6,
    repair: 4,
    hash_interval: 1,
};

/// A welcome to a match of one seat with 16 buttons.
fn welcome(parameters: MatchParameters) -> Vec<u8> {
    let mut out = vec![0x81, 2, 0, 0, 1, 0, 0, 0, 16];
    out.extend_from_slice(&parameters.period_nanos.to_be_bytes());
    out.extend_from_slice(&[parameters.input_delay; 2]);
    out.extend_from_slice(&[parameters.repair, parameters.hash_interval]);
    out.extend_from_slice(&[7; 16]);
    out
}

/// Turns from `tick` on, without changes.
fn turns(tick: u16, count: usize) -> Vec<u8> {
    let mut out = vec![0x82, 0, 0, 0x80];
    out.extend_from_slice(&tick.to_be_bytes());
    out.resize(out.len() + count, 0x20);
    out
}

fn give(client: &mut ClientPeer<u16>, now: Instant, mut datagram: Vec<u8>) {
    client.handle_datagram(now, Arrival::from(PeerId(0)), &mut datagram);
}

/// Wakes and datagrams of a client in `span` after a welcome and one turn; stops after `most` of
/// either.
fn wakes(parameters: MatchParameters, span: Duration, most: u64) -> (u64, u64) {
    let beginning = Instant::from_millis(1);
    let seed = Seed::from_number(1);
    let mut client = ClientPeer::<u16>::new(ClientConfig::default(), PeerId(0), seed, beginning);
    give(&mut client, beginning, welcome(parameters));
    give(&mut client, beginning, turns(0, 1));
    let (mut wakes, mut said, mut buf) = (0, 0, Vec::new());
    while let Some(now) = client.poll_timeout().filter(|at| *at <= beginning + span) {
        client.handle_timeout(now);
        while client.poll_transmit(now, &mut buf).is_some() {
            said += 1;
            buf.clear();
        }
        wakes += 1;
        if wakes.max(said) >= most {
            break;
        }
    }
    (wakes, said)
}

/// A setter for a field, its valid values, and its invalid ones.
type Field = (
    fn(&mut MatchParameters, u32),
    &'static [u32],
    &'static [u32],
);

/// Whether the client and the decoder reject a welcome as malformed.
fn is_refused(change: fn(&mut MatchParameters, u32), value: u32) -> bool {
    let mut parameters = ORDINARY;
    change(&mut parameters, value);
    let datagram = welcome(parameters);
    let now = Instant::from_millis(1);
    let seed = Seed::from_number(1);
    let mut client = ClientPeer::<u16>::new(ClientConfig::default(), PeerId(0), seed, now);
    give(&mut client, now, datagram.clone());
    match decode_down(&datagram, None) {
        Ok(Down::Welcome(_)) => {
            assert!(client.poll_event().is_some(), "{parameters:?}");
            false
        }
        Err(DecodeError::Malformed) => {
            assert_eq!(client.phase(), Phase::Gathering);
            assert_eq!((client.poll_event(), client.poll_timeout()), (None, None));
            assert_eq!(client.stats().dropped_malformed, 1);
            true
        }
        other => panic!("{parameters:?}: {other:?}"),
    }
}

#[test]
fn invalid_welcomes_are_refused() {
    let period = |parameters: &mut MatchParameters, value| parameters.period_nanos = value;
    let delay = |parameters: &mut MatchParameters, value| {
        parameters.input_delay = u8::try_from(value).unwrap();
    };
    let repair =
        |parameters: &mut MatchParameters, value| parameters.repair = u8::try_from(value).unwrap();
    let interval = |parameters: &mut MatchParameters, value| {
        parameters.hash_interval = u8::try_from(value).unwrap();
    };
    let fields: [Field; 4] = [
        (
            period,
            &[1_000_000, 16_666_666, 1_000_000_000],
            &[0, 1, 999_999, 1_000_000_001, u32::MAX],
        ),
        (delay, &[1, 6, 60], &[0, 61, 255]),
        (repair, &[1, 4, 8], &[0, 9, 255]),
        (interval, &[1, 255], &[0]),
    ];
    for (change, taken, refused) in fields {
        assert!(taken.iter().all(|value| !is_refused(change, *value)));
        assert!(refused.iter().all(|value| is_refused(change, *value)));
    }
}

#[test]
fn extreme_welcomes_cause_at_most_one_wake_a_millisecond() {
    // For any accepted welcome, five minutes cause at most one wake and one datagram per
    // millisecond, within the 2 % by which a tick may be shorter.
    let span = Duration::from_secs(300);
    for period_nanos in [1, 999_999, 1_000_000, 1_000_000_000, u32::MAX] {
        for (input_delay, repair, hash_interval) in [(1, 1, 1), (60, 8, u8::MAX), (0, 0, 0)] {
            let parameters = MatchParameters {
                period_nanos,
                input_delay,
                repair,
                hash_interval,
            };
            let most = 310_000;
            let (wakes, said) = wakes(parameters, span, most);
            assert!(
                wakes < most && said < most,
                "{parameters:?}: {wakes} {said}"
            );
        }
    }
}

#[test]
fn a_client_paused_for_years_resumes_in_a_few_steps() {
    // Beyond the last tick number at 1,000 ticks per second, and beyond 63 bits.
    for millis in [60_000, 50 * 86_400_000, u64::MAX / 1_000_000] {
        let beginning = Instant::from_millis(1);
        let seed = Seed::from_number(1);
        let mut client =
            ClientPeer::<u16>::new(ClientConfig::default(), PeerId(0), seed, beginning);
        let parameters = MatchParameters {
            period_nanos: 1_000_000,
            ..ORDINARY
        };
        give(&mut client, beginning, welcome(parameters));
        give(&mut client, beginning, turns(0, 1));
        let now = Instant::from_millis(millis);
        client.handle_timeout(now);
        assert!(client.stats().inputs <= 16, "{}", client.stats().inputs);
        let mut buf = Vec::new();
        assert!(client.poll_transmit(now, &mut buf).is_some());
        assert_eq!(client.poll_transmit(now, &mut buf), None);
    }
}
