use super::*;
use crate::hop::{HopKind, LabelName};
use crypto::{Initial, Role, Secret32};
use netsim::provider::SimProvider;
use proptest::prelude::*;
use wire::Seed;

struct Harness {
    provider: SimProvider,
    sealer: FlowSealer<<SimProvider as Provider>::Aead>,
    opener: FlowOpener<<SimProvider as Provider>::Aead>,
}

impl Harness {
    fn new(flow: u64) -> Self {
        let provider = SimProvider::new(Seed::from_number(1));
        let agreed = Initial::new(&provider, None).agree(&provider, &Secret32::new([3; 32]));
        let exporter = agreed.traffic(&provider, &[0; 32]).split(Role::Dialler).2;
        Self {
            sealer: FlowSealer::new(&provider, &exporter, FlowId(flow), 0),
            opener: FlowOpener::new(&provider, &exporter, FlowId(flow), 0),
            provider,
        }
    }

    fn seal(&mut self, at: u64, payload: &[u8]) -> (HopHeader, Vec<u8>) {
        let mut out = Vec::new();
        let now = Instant::from_millis(at);
        let numbered = self
            .sealer
            .seal(&self.provider, now, (Piece::Whole, payload), &mut out)
            .unwrap();
        let header = HopHeader {
            kind: HopKind::Sealed,
            epoch: 0,
            from: crate::hop::ShardId::FIRST,
            hops_left: 3,
            label: LabelName {
                slot: 0,
                generation: 0,
            },
            phase: numbered.phase,
            number: numbered.number,
        };
        (header, out)
    }

    fn open(
        &mut self,
        at: u64,
        header: &HopHeader,
        mut body: Vec<u8>,
    ) -> Result<Vec<u8>, FlowDrop> {
        let now = Instant::from_millis(at);
        self.opener
            .open(&self.provider, now, header, &mut body)
            .map(|payload| payload.to_vec())
    }
}

#[test]
fn copies_count_once_and_the_path_does_not_enter() {
    let mut harness = Harness::new(1);
    let (header, body) = harness.seal(0, b"tick");
    let on_another_path = HopHeader {
        epoch: 2,
        from: crate::hop::ShardId::FIRST,
        hops_left: 0,
        label: LabelName {
            slot: 77,
            generation: 5,
        },
        ..header
    };
    assert_eq!(
        harness.open(0, &on_another_path, body.clone()),
        Ok(b"tick".to_vec())
    );
    assert_eq!(harness.open(0, &header, body), Err(FlowDrop::Duplicate));
}

#[test]
fn mesh_a4_forged_numbers_do_not_move_the_window() {
    let mut harness = Harness::new(1);
    let (header, body) = harness.seal(0, b"tick");
    for forged in [
        HopHeader {
            number: 1 << 40,
            ..header
        },
        HopHeader {
            phase: Phase {
                key: 1,
                piece: Piece::Whole,
            },
            ..header
        },
        HopHeader {
            phase: Phase {
                key: 0,
                piece: Piece::First,
            },
            ..header
        },
    ] {
        assert_eq!(
            harness.open(0, &forged, body.clone()),
            Err(FlowDrop::Forged),
            "{forged:?}"
        );
    }
    assert_eq!(harness.opener.largest(), None);
    assert!(harness.open(0, &header, body).is_ok());
}

#[test]
fn another_flow_or_direction_has_other_keys() {
    let (mut one, mut other) = (Harness::new(1), Harness::new(3));
    let (header, body) = one.seal(0, b"tick");
    assert_eq!(other.open(0, &header, body), Err(FlowDrop::Forged));
    let mut probe = Harness::new(0);
    let (header, body) = probe.seal(0, b"tick");
    assert_eq!(one.open(0, &header, body), Err(FlowDrop::Forged));
}

#[test]
fn keys_change_with_time_and_late_packets_open() {
    let mut harness = Harness::new(1);
    let late = harness.seal(0, b"late");
    for phase in 1..=130_u64 {
        let at = phase * 900_000;
        let (header, body) = harness.seal(at, b"tick");
        assert_eq!(u64::from(header.phase.key), phase % 64);
        assert!(harness.open(at, &header, body).is_ok());
        if phase == 1 {
            assert!(harness.open(at, &late.0, late.1.clone()).is_ok());
        }
    }
}

proptest! {
    #[test]
    fn mesh_a4_no_changed_byte_is_delivered(
        payload in prop::collection::vec(any::<u8>(), 0..64),
        at in any::<prop::sample::Index>(),
        mask in 1_u8..,
    ) {
        let mut harness = Harness::new(1);
        let (header, body) = harness.seal(0, &payload);
        let mut forged = body.clone();
        let index = at.index(forged.len());
        forged[index] ^= mask;
        prop_assert_eq!(harness.open(0, &header, forged), Err(FlowDrop::Forged));
        prop_assert_eq!(harness.open(0, &header, body), Ok(payload));
    }
}
