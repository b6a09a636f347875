//! The 64-bit tags of tagged messages.

use crate::error::{Error, Status};
use crate::proto::ProtocolError;

/// Bits that a body's tag may set: the sequence number and the lowest bit of the kind.
const BODY_TAG_BITS: u64 = 0x0100_0000_FFFF_FFFF;
/// Bits of a tag that carry the sequence number (rule D5).
const SEQ_BITS: u64 = 0x0000_0000_FFFF_FFFF;
/// First bit of the kind.
const KIND_SHIFT: u32 = 56;

/// The form in which a body travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BodyKind {
    /// Kind 0: the bytes themselves (rule D3).
    Packed,
    /// Kind 1: a list of addresses and lengths (rule D4).
    List,
}

/// The tag of the body of message `seq` (rule D2).
pub const fn body_tag(seq: u32, kind: BodyKind) -> u64 {
    // Rule D2: the number in bits 0..32, the kind in bits 56..64, zeros between.
    let kind: u64 = match kind {
        BodyKind::Packed => 0,
        BodyKind::List => 1,
    };
    (seq as u64) | (kind << KIND_SHIFT)
}

/// The sequence number and the kind in a body's tag; `None`: the tag is no body's.
#[inline]
pub fn body_of_tag(tag: u64) -> Option<(u32, BodyKind)> {
    // Rule D6: the bits between number and kind are zero.
    if (tag >> 32) & 0x00FF_FFFF != 0 {
        return None;
    }
    // Rule D5: the number is the low half.
    let seq = u32::try_from(tag & SEQ_BITS).unwrap_or_default();
    match tag >> KIND_SHIFT {
        0 => Some((seq, BodyKind::Packed)),
        1 => Some((seq, BodyKind::List)),
        _ => None,
    }
}

/// As [`body_of_tag`], but another tag is an error.
///
/// # Errors
///
/// Bits that must be zero are set (rule D6), or the kind is neither 0 nor 1 (rule D2).
#[inline]
pub fn parse_body_tag(tag: u64) -> Result<(u32, BodyKind), ProtocolError> {
    body_of_tag(tag).ok_or_else(|| not_of_a_body(tag))
}

#[cold]
fn not_of_a_body(tag: u64) -> ProtocolError {
    // Rule D6: kind 1 looks like this if a peer shifts the kind by 55 bits.
    if tag & !SEQ_BITS == 1 << 55 {
        return broken!(
            "D6",
            "body tag {tag:#018x} has bit 55 set alone: the peer puts the body kind one bit \
                 too low; kind 1 is bit 56"
        );
    }
    if (tag >> 32) & 0x00FF_FFFF != 0 {
        return broken!(
            "D6",
            "tag {tag:#018x} is no body's: bits 32 to 55 must be zero"
        );
    }
    let kind = tag >> KIND_SHIFT;
    broken!(
        "D2",
        "body tag {tag:#018x} has kind {kind}; only 0 and 1 are known"
    )
}

/// The streams that a connection carries (rule U3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Metadata and bodies.
    Both,
    /// Metadata only.
    Metadata,
    /// Bodies only.
    Data,
}

impl Role {
    /// The value of the URI's `dipc_role`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Metadata => "metadata",
            Self::Data => "data",
        }
    }
}

/// The tags in a URI for requests and frees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tags {
    /// Tag of a baseline request (rule M1).
    pub want_data: u64,
    /// Tag of a free list; `None` if no address list may come (rule U2).
    pub free_data: Option<u64>,
    /// Tag of an extension request (rule E1).
    pub dipc_want: u64,
}

impl Tags {
    /// Default tags of a libdipc server for both streams (rule U5).
    pub const DEFAULT: Self = Self::default_for(Role::Both);

    /// Default tags of a libdipc server for `role` (rules U3, U5).
    pub const fn default_for(role: Role) -> Self {
        // The upper half spells "dipc". No body's tag has this half (rule U4).
        let base: u64 = match role {
            Role::Both => 0x6469_7063_0000_0000,
            Role::Metadata => 0x6469_7063_0000_0010,
            Role::Data => 0x6469_7063_0000_0020,
        };
        Self {
            want_data: base | 1,
            free_data: Some(base | 2),
            dipc_want: base | 3,
        }
    }

    /// Checks that the tags differ and that no tag looks like a body's (rule U4).
    ///
    /// # Errors
    ///
    /// `InvalidUri`, naming the parameter of the URI to change.
    pub fn validate(&self) -> Result<(), Error> {
        validate(&[
            ("want_data", Some(self.want_data)),
            ("free_data", self.free_data),
            ("dipc_want", Some(self.dipc_want)),
        ])
    }

    /// As [`validate`](Self::validate), but for a peer without the extension: checks its tags only.
    pub(crate) fn validate_baseline(&self) -> Result<(), Error> {
        validate(&[
            ("want_data", Some(self.want_data)),
            ("free_data", self.free_data),
        ])
    }
}

fn validate(named: &[(&str, Option<u64>)]) -> Result<(), Error> {
    let invalid = |text: String| Err(Error::new(Status::InvalidUri, text));
    let mut seen: Vec<(&str, u64)> = Vec::with_capacity(named.len());
    for (name, tag) in named
        .iter()
        .filter_map(|(name, tag)| tag.map(|tag| (*name, tag)))
    {
        // Rule U4.
        if tag & !BODY_TAG_BITS == 0 {
            return invalid(format!(
                "{name}={tag} could be mistaken for the tag of a body: set a bit among 32 to 55 or \
                 57 to 63"
            ));
        }
        if let Some((other, _)) = seen.iter().find(|(_, earlier)| *earlier == tag) {
            return invalid(format!(
                // Rule U4.
                "{other} and {name} are both {tag}: they must differ"
            ));
        }
        seen.push((name, tag));
    }
    Ok(())
}

/// The tags that a server answers, by role. The tag of a request tells which streams the client
/// requests (rule U3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoleTags {
    /// Tags of requests for both streams on one connection.
    pub both: Option<Tags>,
    /// Tags of requests for the metadata stream.
    pub metadata: Option<Tags>,
    /// Tags of requests for the data stream.
    pub data: Option<Tags>,
}

impl RoleTags {
    /// Every role with its defaults (rule U5).
    pub const DEFAULT: Self = Self {
        both: Some(Tags::default_for(Role::Both)),
        metadata: Some(Tags::default_for(Role::Metadata)),
        data: Some(Tags::default_for(Role::Data)),
    };

    /// One role only.
    pub const fn only(role: Role, tags: Tags) -> Self {
        let none = Self {
            both: None,
            metadata: None,
            data: None,
        };
        none.with(role, tags)
    }

    /// The same set with other tags for `role`.
    #[must_use]
    pub const fn with(mut self, role: Role, tags: Tags) -> Self {
        match role {
            Role::Both => self.both = Some(tags),
            Role::Metadata => self.metadata = Some(tags),
            Role::Data => self.data = Some(tags),
        }
        self
    }

    /// The tags of `role`, if the server serves `role`.
    pub const fn get(&self, role: Role) -> Option<Tags> {
        match role {
            Role::Both => self.both,
            Role::Metadata => self.metadata,
            Role::Data => self.data,
        }
    }

    fn iter(&self) -> impl Iterator<Item = (Role, Tags)> + '_ {
        [Role::Both, Role::Metadata, Role::Data]
            .into_iter()
            .filter_map(|role| self.get(role).map(|tags| (role, tags)))
    }

    /// The role that a request with this tag asks for, and whether the request is the extension's.
    pub(crate) fn request(&self, tag: u64) -> Option<(Role, bool)> {
        self.iter().find_map(|(role, tags)| {
            if tag == tags.dipc_want {
                Some((role, true))
            } else if tag == tags.want_data {
                Some((role, false))
            } else {
                None
            }
        })
    }

    /// Whether the tag is for free lists.
    pub(crate) fn is_free(&self, tag: u64) -> bool {
        self.iter().any(|(_, tags)| tags.free_data == Some(tag))
    }

    /// Whether the tags of bodies can have the number of their stream in bits 32 to 55: no such tag
    /// is equal to one of these tags (rule S2).
    pub(crate) fn leave_room_for_numbers(&self) -> bool {
        let tags = self.iter().flat_map(|(_, tags)| {
            let requests = [tags.want_data, tags.dipc_want];
            requests.into_iter().chain(tags.free_data)
        });
        tags.into_iter().all(|tag| tag >> (KIND_SHIFT + 1) != 0)
    }

    /// Checks rule U4 for each role, and that all requests have different tags.
    ///
    /// # Errors
    ///
    /// `InvalidUri`, naming the part to change.
    pub fn validate(&self) -> Result<(), Error> {
        let mut requests: Vec<(Role, u64)> = Vec::with_capacity(6);
        for (role, tags) in self.iter() {
            tags.validate()?;
            for tag in [tags.want_data, tags.dipc_want] {
                let other = requests.iter().find(|(_, earlier)| *earlier == tag);
                if other.is_some() || self.is_free(tag) {
                    let other = other.map_or("free_data", |(role, _)| role.as_str());
                    return Err(Error::new(
                        Status::InvalidUri,
                        format!(
                            // Rule U3.
                            "tag {tag} of the role {} is used by {other} too: give each role tags \
                             of its own",
                            role.as_str()
                        ),
                    ));
                }
                requests.push((role, tag));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules D2, D5: number and kind survive, and have the bits of the rule.
    #[test]
    fn body_tags_carry_number_and_kind() {
        assert_eq!(body_tag(7, BodyKind::Packed), 7);
        assert_eq!(body_tag(u32::MAX, BodyKind::List), 0x0100_0000_FFFF_FFFF);
        for seq in [0, 1, 0x8000_0000, u32::MAX] {
            for kind in [BodyKind::Packed, BodyKind::List] {
                assert_eq!(parse_body_tag(body_tag(seq, kind)), Ok((seq, kind)));
            }
        }
    }

    /// Rule D6: each of bits 32..56 is rejected; for bit 55 alone, the text says so.
    #[test]
    fn reserved_bits_are_rejected() {
        for bit in 32..56 {
            for kind in [0, 1 << 56] {
                let error = parse_body_tag(1 << bit | kind | 3).unwrap_err();
                assert_eq!(error.rule(), "D6");
                let alone = bit == 55 && kind == 0;
                assert_eq!(error.text().contains("bit 55 set alone"), alone, "{error}");
            }
        }
    }

    /// Rule D2: kinds other than 0 and 1 are rejected by their number.
    #[test]
    fn unknown_kinds_are_rejected() {
        for kind in 2..=255_u64 {
            let error = parse_body_tag(kind << 56).unwrap_err();
            assert_eq!(error.rule(), "D2");
            assert!(error.text().contains(&format!("kind {kind};")));
        }
    }

    /// Rules U4, U5: the defaults of all roles are valid, and one server can use them together.
    #[test]
    fn defaults_are_valid() {
        for role in [Role::Both, Role::Metadata, Role::Data] {
            Tags::default_for(role).validate().unwrap();
            RoleTags::only(role, Tags::default_for(role))
                .validate()
                .unwrap();
        }
        RoleTags::DEFAULT.validate().unwrap();
        assert_eq!(
            RoleTags::DEFAULT.request(Tags::default_for(Role::Data).dipc_want),
            Some((Role::Data, true))
        );
        assert_eq!(
            RoleTags::DEFAULT.request(Tags::DEFAULT.want_data),
            Some((Role::Both, false))
        );
        assert_eq!(RoleTags::DEFAULT.request(body_tag(1, BodyKind::List)), None);
    }

    /// Rule S2: tags that the body of some stream could have leave no room for numbers.
    #[test]
    fn tags_leave_room_for_numbers_of_streams() {
        assert!(RoleTags::DEFAULT.leave_room_for_numbers());
        for (bit, leaves) in [(32, false), (55, false), (57, true), (63, true)] {
            let tags = Tags {
                want_data: 1 << bit,
                ..Tags::DEFAULT
            };
            let tags = RoleTags::only(Role::Both, tags);
            assert_eq!(tags.leave_room_for_numbers(), leaves, "bit {bit}");
        }
    }

    /// Rule U4: equal tags, and tags that look like a body's, are refused by name.
    #[test]
    fn tags_that_mislead_are_refused() {
        for bad in [0, 5, u64::from(u32::MAX), 0x0100_0000_0000_0001] {
            assert!(parse_body_tag(bad).is_ok());
            let error = Tags {
                free_data: Some(bad),
                ..Tags::DEFAULT
            }
            .validate()
            .unwrap_err();
            assert_eq!(error.status(), Status::InvalidUri);
            assert!(error.text().contains("free_data="));
        }
        for bit in (32..56).chain(57..64) {
            let tags = Tags {
                want_data: 1 << bit,
                ..Tags::DEFAULT
            };
            tags.validate().unwrap();
        }
        let error = Tags {
            dipc_want: Tags::DEFAULT.want_data,
            ..Tags::DEFAULT
        }
        .validate();
        assert!(
            error
                .unwrap_err()
                .text()
                .starts_with("want_data and dipc_want are both")
        );
        let clash = RoleTags::DEFAULT.with(Role::Data, Tags::DEFAULT);
        assert!(
            clash
                .validate()
                .unwrap_err()
                .text()
                .contains("tags of its own")
        );
    }
}
