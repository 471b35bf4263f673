//! `PureGamer`'s `config.json` of five fields, as the configuration of a node here.
//!
//! A node there may be entry, relay and exit at once, and so it is here; the games' lists say which. What it
//! has no field for is made of what it has: who is let in is a secret in the data folder, which the node
//! makes of the admin's public key where there is none. A network that anybody may join who knows that key
//! is what it was there; a secret of one's own closes it.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;

use relay_mesh::signed_config::{AdminKeys, NodeFile, PeerAddress};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{
    BootstrapNode, ConfigError, FileConfig, FileHopFrames, FileLimits, FileRole, FileSigned,
};
use crate::relay::store::write_atomic;

/// What tells the one form from the other.
#[derive(Deserialize)]
struct Kind {
    super_admin_pub_key: Option<IgnoredAny>,
}

/// Returns whether a file is of the five fields, right or wrong.
pub(super) fn is_seed(text: &[u8]) -> bool {
    let text = text.strip_prefix("\u{FEFF}".as_bytes()).unwrap_or(text);
    serde_json::from_slice::<Kind>(text).is_ok_and(|kind| kind.super_admin_pub_key.is_some())
}

/// Reads the five fields, and makes the data folder and its secret where they are not there.
pub(super) fn read(path: &Path, text: &[u8]) -> Result<FileConfig, ConfigError> {
    let file = NodeFile::read(text).map_err(|error| ConfigError::new(path, &error))?;
    let nodes = file.bootstrap_nodes.iter().map(node);
    let bootstrap: Vec<BootstrapNode> = nodes
        .collect::<Result<_, _>>()
        .map_err(|fault| ConfigError::new(path, &fault))?;
    let admin = file.super_admin_pub_key;
    let admins = AdminKeys::new([admin], 1).map_err(|error| ConfigError::new(path, &error))?;
    let data = Path::new(&file.data_path);
    let folder = path.parent().unwrap_or_else(|| Path::new("")).join(data);
    let secret = admin.node_id().to_string();
    make_data(&folder, &secret).map_err(|error| ConfigError::new(&folder, &error))?;
    let ip = own_ip(bootstrap.first().map(|known| known.address));
    Ok(FileConfig {
        name: "node".to_owned(),
        identity_file: data.join("node.pem"),
        secret_file: data.join(SECRET),
        listen: SocketAddr::new(ip, file.port),
        advertise: Vec::new(),
        roles: [FileRole::Entry, FileRole::Relay, FileRole::Exit].into(),
        bootstrap,
        members: None,
        games: Vec::new(),
        proxies: BTreeMap::new(),
        rations: BTreeMap::new(),
        probes: BTreeMap::new(),
        signed: Some(FileSigned {
            network: NETWORK.to_owned(),
            admins,
            store: file.config_path.into(),
            minimum: None,
            listen: vec![ip],
        }),
        admin: None,
        limits: FileLimits::default(),
        upstream_ip: None,
        shards: 1,
        hop_frames: FileHopFrames::default(),
        links: Vec::new(),
        seed: 0,
    })
}

fn node(known: &PeerAddress) -> Result<BootstrapNode, String> {
    let name = known.peer.clone().try_into().map_err(|_| {
        format!(
            "bootstrap node {:?} is named as by libp2p; here the id of a node is 64 hexadecimal \
             digits, which it prints as it starts",
            known.peer
        )
    });
    Ok(BootstrapNode {
        node: name?,
        address: known.address,
    })
}

fn make_data(folder: &Path, secret: &str) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    let path = folder.join(SECRET);
    if fs::exists(&path)? {
        return Ok(());
    }
    // Whole or not at all: half a secret would let nobody in, at each start again.
    write_atomic(&path, secret.as_bytes())
}

/// The address that this host speaks to `far` from, or to anybody; nothing is sent.
fn own_ip(far: Option<SocketAddr>) -> IpAddr {
    let far = far.unwrap_or(SOMEBODY);
    let any: IpAddr = match far {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let chosen = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(far)?;
        socket.local_addr()
    });
    // A host without a way to anybody has itself.
    chosen.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}

/// The network's name there, as nodes find each other by it.
const NETWORK: &str = "PureGamerNetwork-0";
const SECRET: &str = "secret";
/// Of documentation, RFC 5737.
const SOMEBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pg1_a_secret_that_cannot_be_written_whole_is_made_at_the_next_start() {
        let name = format!("tickwire-seed-secret-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // A folder where the draft goes: it cannot be opened, whoever runs this.
        let draft = folder.join("secret.new");
        fs::create_dir_all(&draft).unwrap();
        assert!(make_data(&folder, "of the admin").is_err());
        let secret = folder.join(SECRET);
        assert!(!fs::exists(&secret).unwrap());
        fs::remove_dir(&draft).unwrap();
        for made in ["of the admin", "another"] {
            make_data(&folder, made).unwrap();
            assert_eq!(fs::read_to_string(&secret).unwrap(), "of the admin");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
