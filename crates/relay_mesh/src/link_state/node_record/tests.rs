use super::*;
use crypto::Identity;
use netsim::provider::SimProvider;
use proptest::prelude::*;
use wire::Seed;

const NETWORK: Network = Network([9; 16]);

fn full(key: PublicKey) -> NodeRecord {
    NodeRecord {
        key,
        version: 77,
        profile: Profile {
            roles: Roles::ENTRY | Roles::EXIT,
            name: "n".repeat(32),
            addresses: ["[::1]:1", "[2001:db8::1]:2", "[::]:3", "[::2]:4"]
                .map(|address| address.parse().unwrap())
                .into(),
        },
        neighbours: (0..64_u64).map(|n| ShortId(n.to_be_bytes())).collect(),
    }
}

#[test]
fn the_bytes_are_frozen() {
    let record = NodeRecord {
        key: PublicKey([3; 65]),
        version: 0x0102,
        profile: Profile {
            roles: Roles::RELAY,
            name: "a.b".to_owned(),
            addresses: vec!["1.2.3.4:258".parse().unwrap()],
        },
        neighbours: vec![ShortId([5; 8])],
    };
    let mut expected = vec![3; 65];
    expected.extend([0, 0, 0, 0, 0, 0, 1, 2, 2, 3]);
    expected.extend(b"a.b");
    expected.extend([1, 4, 1, 2, 3, 4, 1, 2, 1, 5, 5, 5, 5, 5, 5, 5, 5]);
    assert_eq!(record.body(), expected);
    expected.extend([0; 64]);
    assert_eq!(NodeRecord::decode(&expected), Ok(record));
}

#[test]
fn the_longest_record_is_read_and_any_change_refused() {
    let mut provider = SimProvider::new(Seed::from_number(1));
    let identity = Identity::generate(&mut provider).unwrap();
    let key = provider.signing_key(&identity).unwrap();
    let record = full(*identity.public_key());
    let bytes = record.sign(&mut provider, &key, NETWORK).unwrap();
    assert_eq!(bytes.len(), NodeRecord::LEN_MAX);
    assert_eq!(NodeRecord::decode(&bytes).as_ref(), Ok(&record));
    assert_eq!(record.origin(), identity.node_id());
    assert!(record.verify(&provider, NETWORK, &bytes));
    assert!(!record.verify(&provider, Network([8; 16]), &bytes));
    for index in (65..bytes.len()).step_by(31) {
        let mut changed = bytes.clone();
        changed[index] ^= 1;
        assert!(!record.verify(&provider, NETWORK, &changed), "byte {index}");
        assert_eq!(
            NodeRecord::hash(&provider, &changed) != NodeRecord::hash(&provider, &bytes),
            index < bytes.len() - 64,
            "the hash leaves out the signature, which can be changed without the key"
        );
    }
}

#[test]
fn every_rule_is_kept() {
    let record = full(PublicKey([4; 65]));
    let mut good = record.body();
    good.extend([0; 64]);
    assert_eq!(NodeRecord::decode(&good), Ok(record.clone()));
    for len in 0..good.len() {
        assert!(NodeRecord::decode(&good[..len]).is_err(), "{len}");
    }
    let over = |max| Err(DecodeError::OverLimit { found: 255, max });
    for (index, value, expected) in [
        (73, 8, Err(DecodeError::BadValue)),
        (74, 255, over(32)),
        (75, b'\n', Err(DecodeError::BadValue)),
        (107, 255, over(4)),
        (108, 5, Err(DecodeError::BadValue)),
        (184, 255, over(64)),
    ] {
        let mut changed = good.clone();
        changed[index] = value;
        assert_eq!(NodeRecord::decode(&changed), expected, "byte {index}");
    }
    good.push(0);
    assert_eq!(NodeRecord::decode(&good), Err(DecodeError::Trailing));

    for (neighbours, why) in [
        (vec![ShortId([1; 8]); 2], DecodeError::Unordered),
        (
            vec![ShortId([2; 8]), ShortId([1; 8])],
            DecodeError::Unordered,
        ),
        (vec![ShortId::from(record.origin())], DecodeError::BadValue),
    ] {
        let twice = NodeRecord {
            neighbours,
            ..record.clone()
        };
        let bytes = [twice.body(), vec![0; 64]].concat();
        assert_eq!(NodeRecord::decode(&bytes), Err(why));
    }
}

#[test]
fn a_profile_over_its_limits_is_reported_and_cut() {
    let mut record = full(PublicKey([4; 65]));
    assert!(record.profile.is_valid());
    record.profile.name.push('x');
    assert!(!record.profile.is_valid());
    record.profile.addresses.push("[::5]:5".parse().unwrap());
    record.neighbours.push(ShortId([0xff; 8]));
    assert_eq!(record.body().len() + 64, NodeRecord::LEN_MAX);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        head: [[u8; 8]; 10],
        rest in prop::collection::vec(0_u8..6, 0..120),
    ) {
        let mut bytes = head.concat();
        bytes.truncate(73);
        bytes.extend(rest);
        bytes.extend([0; 64]);
        if let Ok(record) = NodeRecord::decode(&bytes) {
            prop_assert_eq!(record.body(), &bytes[..bytes.len() - 64]);
        }
    }
}
