//! Parts of paths, and parameters of queries.

use std::str::FromStr;

use axum::extract::Path;
use axum::extract::Query;
use axum::extract::rejection::PathRejection;
use axum::http::Uri;
use hub::Name;
use wire::{ClientId, NodeId};

use crate::http::error_response::{ErrorResponse, FieldError};

/// The parameters of a query, each at most once.
#[derive(Debug)]
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Reads the query of `uri`; rejects names other than `known`.
    pub(super) fn read(uri: &Uri, known: &'static [&'static str]) -> Result<Self, ErrorResponse> {
        // Invalid UTF-8 is replaced, and then matches nothing.
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(uri).map(|Query(pairs)| pairs);
        let pairs = pairs.unwrap_or_default();
        for (index, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let found = "a parameter of this name".to_owned();
                return Err(fault(name, found, "one that the path has"));
            }
            let earlier = pairs.iter().take(index);
            if earlier.into_iter().any(|(other, _)| other == name) {
                return Err(fault(name, "two of this name".to_owned(), "one"));
            }
        }
        Ok(Self(pairs))
    }

    /// Rejects the query if it has the parameter, which would do nothing.
    pub(super) fn without(&self, name: &str, expected: &'static str) -> Result<(), ErrorResponse> {
        match self.text(name) {
            Some(text) => Err(fault(name, format!("{:?}", truncated(text)), expected)),
            None => Ok(()),
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn parsed<T: FromStr>(
        &self,
        name: &str,
        expected: &'static str,
    ) -> Result<Option<T>, ErrorResponse> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let value = text.parse().map(Some);
        value.map_err(|_| fault(name, format!("{:?}", truncated(text)), expected))
    }

    /// Returns a number from 1 to `max`; `max` if there is none.
    pub(super) fn count(&self, name: &str, max: usize) -> Result<usize, ErrorResponse> {
        let expected = "a number from 1";
        let count: Option<usize> = self.parsed(name, expected)?;
        match count {
            Some(0) => Err(fault(name, "0".to_owned(), expected)),
            Some(count) => Ok(count.min(max)),
            None => Ok(max),
        }
    }
}

fn fault(name: &str, found: String, expected: &'static str) -> ErrorResponse {
    let fault = FieldError {
        field: truncated(name),
        found,
        expected,
    };
    ErrorResponse::bad_field("bad_query", fault)
}

pub(super) fn truncated(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Reads the player of a path: a decimal number.
pub(super) fn player(part: Result<Path<String>, PathRejection>) -> Result<ClientId, ErrorResponse> {
    let text = part.map(|Path(text)| text).unwrap_or_default();
    let number = text.parse::<u64>().ok();
    // One spelling each.
    let number = number.filter(|number| number.to_string() == text);
    number.map(ClientId).ok_or_else(|| {
        let found = truncated(&text);
        let detail = format!(
            "found {found:?}, expected a player: a decimal number of 64 bits without a sign or leading \
             zeros"
        );
        ErrorResponse::bad("bad_player", detail)
    })
}

/// Reads the node of a path: its id.
pub(super) fn node(part: Result<Path<String>, PathRejection>) -> Result<NodeId, ErrorResponse> {
    let text = part.map(|Path(text)| text).unwrap_or_default();
    let detail = "a node is its id, 64 hexadecimal digits";
    text.parse()
        .map_err(|_| ErrorResponse::bad("bad_node", detail))
}

/// Reads the name in a path.
pub(super) fn name(part: Result<Path<String>, PathRejection>) -> Result<Name, ErrorResponse> {
    let text = part.map(|Path(text)| text).unwrap_or_default();
    Name::new(&text).map_err(|error| {
        let found = truncated(&text);
        ErrorResponse::bad("bad_name", format!("found {found:?}: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Parameters, ErrorResponse> {
        let uri: Uri = format!("/v1/mail/1?{query}").parse().unwrap();
        Parameters::read(&uri, &["from", "max"])
    }

    #[test]
    fn parameters_are_known_and_given_once() {
        let parameters = read("from=7&max=5").unwrap();
        assert_eq!(parameters.parsed("from", "a number").unwrap(), Some(7));
        assert_eq!(parameters.count("max", 3).unwrap(), 3);
        assert_eq!(read("").unwrap().count("max", 3).unwrap(), 3);
        for query in ["form=7", "from=1&from=2"] {
            assert!(read(query).is_err(), "{query}");
        }
        for query in ["max=0", "max=x", "max=-1", "max="] {
            assert!(read(query).unwrap().count("max", 3).is_err(), "{query}");
        }
    }

    #[test]
    fn a_player_has_one_spelling() {
        let read = |text: &str| player(Ok(Path(text.to_owned())));
        assert_eq!(read("18446744073709551615").unwrap(), ClientId(u64::MAX));
        for text in ["", "01", "+1", "-1", "x", "18446744073709551616"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
