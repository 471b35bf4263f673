//! Records round-trip, other bytes are rejected, and the format is frozen.

use core::time::Duration;

use matchmaker_core::record::{
    Assign, DecodeError, MATCHES_MAX, Register, Reply, RunningMatch, Verdict, encode_bye,
    encode_heartbeat, encode_left, encode_result,
};
use matchmaker_core::{Config, Seated};
use proptest::prelude::*;
use wire::{ClientId, InstanceId, MatchId, Seat, Team};

use crate::harness::{Harness, Server};

#[test]
fn the_bytes_are_frozen() {
    let assign = Assign {
        instance: InstanceId(0x0102_0304_0506_0708),
        match_id: MatchId([0xAA; 16]),
        players: vec![Seated {
            client_id: ClientId(9),
            seat: Seat(0x0B0C),
            team: Team(0x0D),
        }],
    };
    let mut record = Vec::new();
    assign.encode(&mut record);
    let id = "aa".repeat(16);
    assert_eq!(
        hex(&record),
        format!("01100102030405060708{id}000100000000000000090b0c0d")
    );

    let encoded = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut record = Vec::new();
        encode(&mut record);
        hex(&record)
    };
    let match_id = MatchId([0xAA; 16]);
    let open = matchmaker_core::record::Intake::Open;
    let one = core::iter::once((match_id, true));
    assert_eq!(
        encoded(&|out| encode_heartbeat(open, one.clone(), out)),
        format!("0102010001{id}01")
    );
    assert_eq!(
        encoded(&|out| encode_result(match_id, b"\x07", out)),
        format!("0103{id}07")
    );
    assert_eq!(
        encoded(&|out| encode_left(match_id, ClientId(9), out)),
        format!("0104{id}0000000000000009")
    );
    assert_eq!(encoded(&encode_bye), "0105");
    assert_eq!(encoded(&|out| Verdict::Full.encode(out)), "0101");
    let renewed = Reply::Renewed {
        lease: Duration::from_secs(30),
        heartbeat: Duration::from_secs(10),
        release: vec![match_id],
    };
    assert_eq!(
        encoded(&|out| renewed.encode(out)),
        format!("01000000753000002710{}{id}", "0001")
    );
}

#[test]
fn a_register_record_has_frozen_bytes() {
    let server = Server::new(1, 0x0203);
    let record = server.record().encode().unwrap();
    let key = hex(server.key.to_bytes().as_slice());
    let identity = hex(&server.identity_keys.as_slice()[0].0);
    let address = "0400000000000000000000ffffc00002011151";
    assert_eq!(
        hex(&record),
        format!("01010000000000005eed{key}02030101{identity}01{address}0000")
    );
}

#[test]
fn a_cut_or_lengthened_register_record_is_refused() {
    let mut server = Server::new(1, 8);
    server.matches.insert(MatchId([1; 16]), Vec::new());
    let record = server.record().encode().unwrap();
    let mut harness = Harness::new(Config::default(), (1, 1), &[&server]);
    let malformed = Reply::Refused(matchmaker_core::record::RefuseReason::Malformed);
    for len in 0..record.len() {
        assert_eq!(
            server.call(&mut harness, &record[..len]),
            malformed,
            "{len}"
        );
    }
    let longer = [record.as_slice(), &[0]].concat();
    assert_eq!(server.call(&mut harness, &longer), malformed);
    server.join(&mut harness);
}

#[test]
fn matches_out_of_order_are_refused() {
    let server = Server::new(1, 8);
    let entry = |id| RunningMatch {
        match_id: MatchId([id; 16]),
        is_entered: true,
        players: Vec::new(),
    };
    let with = |ids: &[u8]| Register {
        matches: ids.iter().copied().map(entry).collect(),
        ..server.record()
    };
    assert!(with(&[1, 2]).encode().is_some());
    assert!(with(&[2, 1]).encode().is_none());
    assert!(with(&[1, 1]).encode().is_none());
    let many = Register {
        matches: (0..=MATCHES_MAX)
            .map(|id| {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&id.to_be_bytes());
                RunningMatch {
                    match_id: MatchId(bytes),
                    is_entered: true,
                    players: Vec::new(),
                }
            })
            .collect(),
        ..server.record()
    };
    assert!(many.encode().is_none());
    let mut harness = Harness::new(Config::default(), (1, 1), &[&server]);
    server.join(&mut harness);
    let heartbeat = |ids: &[u8]| {
        let mut body = Vec::new();
        let ids = ids.iter().map(|id| (MatchId([*id; 16]), true));
        encode_heartbeat(matchmaker_core::record::Intake::Open, ids, &mut body);
        body
    };
    let malformed = Reply::Refused(matchmaker_core::record::RefuseReason::Malformed);
    assert_eq!(server.call(&mut harness, &heartbeat(&[2, 1])), malformed);
    assert_eq!(server.call(&mut harness, &heartbeat(&[1, 1])), malformed);
    assert_ne!(server.call(&mut harness, &heartbeat(&[1, 2])), malformed);
    // An undefined flag.
    let mut strange = heartbeat(&[1, 2]);
    *strange.last_mut().unwrap() = 2;
    assert_eq!(server.call(&mut harness, &strange), malformed);
}

#[test]
fn answers_of_another_version_or_kind_are_refused() {
    assert_eq!(Verdict::decode(&[2, 0]), Err(DecodeError::Version(2)));
    assert_eq!(Verdict::decode(&[1, 9]), Err(DecodeError::Kind(9)));
    assert_eq!(Verdict::decode(&[1, 0, 0]), Err(DecodeError::Trailing(1)));
    assert_eq!(Verdict::decode(&[1]), Err(DecodeError::Truncated));
    assert_eq!(Reply::decode(&[1, 4, 99]), Err(DecodeError::Kind(99)));
    assert_eq!(Assign::decode(&[1, 2]), Err(DecodeError::Kind(2)));
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        instance: u64,
        id: [u8; 16],
        players in prop::collection::vec((any::<u64>(), any::<u16>(), any::<u8>()), 1..=256),
    ) {
        let players = players.into_iter().map(|(client, seat, team)| Seated {
            client_id: ClientId(client),
            seat: Seat(seat),
            team: Team(team),
        });
        let assign = Assign {
            instance: InstanceId(instance),
            match_id: MatchId(id),
            players: players.collect(),
        };
        let mut record = Vec::new();
        assign.encode(&mut record);
        prop_assert_eq!(Assign::decode(&record), Ok(assign));
    }

    #[test]
    fn decoded_records_encode_to_the_same_bytes(bytes: Vec<u8>, head in 0_u8..20) {
        let bytes = [&[1, head], bytes.as_slice()].concat();
        let mut again = Vec::new();
        if let Ok(assign) = Assign::decode(&bytes) {
            assign.encode(&mut again);
            prop_assert_eq!(&again, &bytes);
        }
        again.clear();
        if let Ok(reply) = Reply::decode(&bytes) {
            reply.encode(&mut again);
            prop_assert_eq!(&again, &bytes);
        }
    }

    #[test]
    fn bgx2_no_call_stops_the_matchmaker(bodies in prop::collection::vec((any::<Vec<u8>>(), 0_u8..8), 1..50)) {
        let server = Server::new(1, 8);
        let mut harness = Harness::new(Config::default(), (1, 1), &[&server]);
        server.join(&mut harness);
        for (bytes, kind) in bodies {
            let body = [&[1, kind], bytes.as_slice()].concat();
            server.call(&mut harness, &body);
        }
        prop_assert!(harness.machine.load().servers <= 1);
    }
}

fn hex(bytes: &[u8]) -> String {
    use core::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}
