//! Certificates: what a root key signs, and which verifiers accept it.

use core::time::Duration;

use crypto::certificate::{Certificate, CertificateError, Expected, Subject};
use crypto::{Identity, Provider, PublicKey};
use wire::{InstanceId, UnixTime};

use crate::for_each_provider;

const APP: u64 = 5;
const SERVER: InstanceId = InstanceId(0x1122_3344_5566_7788);
const END: UnixTime = UnixTime::from_secs(1_800_000_000);

fn issue(provider: &mut impl Provider) -> (Certificate, PublicKey, Subject) {
    let root = Identity::generate(provider).unwrap();
    let server = Identity::generate(provider).unwrap();
    let subject = Subject {
        key: *server.public_key(),
        server_id: SERVER,
        not_after: END,
    };
    let certificate = Certificate::issue(provider, &root, APP, &subject).unwrap();
    (certificate, *root.public_key(), subject)
}

const fn expected(roots: &[PublicKey]) -> Expected<'_> {
    Expected {
        roots,
        app_id: APP,
        server_id: Some(SERVER),
        now: Some(END),
    }
}

fn is_believed_by_either_root_and_read_as_it_was_written(provider: &mut impl Provider) {
    let (certificate, root, subject) = issue(provider);
    let other = *Identity::generate(provider).unwrap().public_key();
    let read = Certificate::parse(certificate.as_bytes()).unwrap();
    assert_eq!((read, read.subject()), (certificate, subject));
    for roots in [&[root][..], &[root, other], &[other, root]] {
        assert_eq!(read.check(provider, &expected(roots)), Ok(subject));
    }
    let roots = [root];
    let anywhere = Expected {
        server_id: None,
        ..expected(&roots)
    };
    assert_eq!(read.check(provider, &anywhere), Ok(subject));
}

fn each_fault_has_a_name(provider: &mut impl Provider) {
    let (certificate, root, _) = issue(provider);
    let (other, _, _) = issue(provider);
    let roots = [root];
    let good = expected(&roots);
    let at = |offset: u64| Some(END + Duration::from_millis(offset));
    for (certificate, expected, fault) in [
        (other, good, Some(CertificateError::Issuer)),
        (
            certificate,
            Expected { roots: &[], ..good },
            Some(CertificateError::Issuer),
        ),
        (
            certificate,
            Expected { app_id: 6, ..good },
            Some(CertificateError::Issuer),
        ),
        (
            certificate,
            Expected {
                server_id: Some(InstanceId(1)),
                ..good
            },
            Some(CertificateError::OtherServer(SERVER)),
        ),
        (
            certificate,
            Expected { now: None, ..good },
            Some(CertificateError::NoClock),
        ),
        (
            certificate,
            Expected {
                now: at(5_999),
                ..good
            },
            None,
        ),
        (
            certificate,
            Expected {
                now: at(6_000),
                ..good
            },
            Some(CertificateError::Expired),
        ),
    ] {
        assert_eq!(certificate.check(provider, &expected).err(), fault);
    }
}

fn no_bit_of_it_may_change(provider: &mut impl Provider) {
    let (certificate, root, _) = issue(provider);
    let roots = [root];
    for index in 0..Certificate::LEN {
        let mut bytes = *certificate.as_bytes();
        bytes[index] ^= 1 << (index % 8);
        let Some(changed) = Certificate::parse(&bytes) else {
            assert_eq!(index, 0, "the version");
            continue;
        };
        assert_eq!(
            changed.check(provider, &expected(&roots)),
            Err(CertificateError::Issuer),
            "byte {index}"
        );
    }
}

for_each_provider!(
    is_believed_by_either_root_and_read_as_it_was_written,
    each_fault_has_a_name,
    no_bit_of_it_may_change,
);

#[test]
fn the_latest_possible_end_is_encoded() {
    let mut provider = crypto::Ring::new();
    let root = Identity::generate(&mut provider).unwrap();
    let subject = Subject {
        key: *root.public_key(),
        server_id: SERVER,
        not_after: UnixTime::from_millis(u64::MAX),
    };
    let certificate = Certificate::issue(&mut provider, &root, APP, &subject).unwrap();
    let end = certificate.subject().not_after;
    assert_eq!(end.as_secs(), subject.not_after.as_secs());
    assert_eq!(
        certificate.as_bytes()[74],
        0x41,
        "7 bytes, the highest first"
    );
}
