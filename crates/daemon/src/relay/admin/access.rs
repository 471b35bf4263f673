//! Who may ask.

use axum::http::HeaderMap;
use crypto::Secret32;
use wire::NodeId;

use crate::http::field::bearer_token;

/// The token, RFC 6750: `Authorization: Bearer` and 64 hexadecimal digits.
pub(super) struct Access(Secret32);

impl Access {
    pub(super) const fn new(token: Secret32) -> Self {
        Self(token)
    }

    /// Returns whether the request has the token; the time it takes tells nothing of a wrong one.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        // A node id has the same form.
        let token: Option<NodeId> = bearer_token(headers).and_then(|token| token.parse().ok());
        token.is_some_and(|token| crypto::equal(&token.0, self.0.expose()))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, header};

    use super::*;

    #[test]
    fn pgx12_the_token_alone_opens() {
        let access = Access::new(Secret32::new([0xab; 32]));
        let admits = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            }
            access.admits(&headers)
        };
        let right = format!("Bearer {}", "ab".repeat(32));
        assert!(admits(&[&right]));
        assert!(admits(&[&right.replace("Bearer", "bearer")]));
        let twice = admits(&[&right, &right]);
        assert!(!twice, "which one counts is nobody's to guess");
        for wrong in [
            String::new(),
            "Bearer".to_owned(),
            "Bearer ".to_owned(),
            right.replace("Bearer", "Basic"),
            right.replace("Bearer ", ""),
            right.replacen("ab", "ac", 1),
            format!("{right}ab"),
            right.replacen("ab", "", 1),
        ] {
            assert!(!admits(&[&wrong]), "{wrong}");
        }
        assert!(!admits(&[]));
    }
}
