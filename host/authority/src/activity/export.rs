//! The whole activity, given away so that it can be checked again without the rows being in the database any more.
//!
//! Each exported row carries its own MAC and the one before it, so that each is proven by itself and all of them in
//! their order. What was exported is checked by whoever has the master key, which is the server alone. A line that is
//! not byte for byte what was exported is no row.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sqlx::Row as _;

use super::chain::{Covered, Head, kept_is_missing};
use super::{Activity, ActivityRow, read};
use crate::error::{Error, Result};
use crate::keys::Keys;

/// A row with its place in the chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExportedRow {
    /// The row.
    #[serde(flatten)]
    pub row: ActivityRow,
    /// The MAC of the row before it in its replica's chain, in hex; empty of the first.
    pub previous: String,
    /// Its own.
    pub mac: String,
}

/// What an export has of one replica's chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedChain {
    /// The first row's number.
    pub first: i64,
    /// The last row.
    pub head: Head,
}

/// What is right about an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportChecked {
    /// How many rows.
    pub rows: u64,
    /// By replica.
    pub chains: BTreeMap<String, ExportedChain>,
}

/// Checks an export, line by line.
pub struct ExportCheck {
    keys: Arc<Keys>,
    replica: Arc<str>,
    kept: Option<Head>,
    kept_seen: bool,
    rows: u64,
    chains: BTreeMap<String, ExportedChain>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
        .collect()
}

impl Head {
    /// The MAC in hex, as exports and people have it.
    pub fn mac_hex(&self) -> String {
        hex(&self.mac)
    }

    /// The head of this number whose MAC is this hex; none where that is no MAC.
    pub fn of_hex(sequence: i64, mac: &str) -> Option<Head> {
        let mac = unhex(mac)?;
        let none = sequence == 0 && mac.is_empty();
        (none || (sequence > 0 && mac.len() == 32)).then_some(Head { sequence, mac })
    }
}

impl Activity {
    /// The oldest rows after a position, at most `limit`, with their places in the chain.
    pub async fn export(&self, after: i64, limit: u32) -> Result<Vec<ExportedRow>> {
        if after == 0 {
            self.denials.before_reading(&self.store).await;
        }
        let rows = sqlx::query(
            "SELECT a.*, p.mac AS previous FROM activity a
             LEFT JOIN activity p ON p.replica = a.replica AND p.sequence = a.sequence - 1
             WHERE a.position > $1 ORDER BY a.position LIMIT $2",
        )
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(self.store.search())
        .await?;
        rows.iter()
            .map(|stored| {
                let previous: Option<&[u8]> = stored.try_get("previous")?;
                Ok(ExportedRow {
                    row: read::row(stored)?,
                    previous: hex(previous.unwrap_or_default()),
                    mac: hex(stored.try_get("mac")?),
                })
            })
            .collect()
    }

    /// A check of an export of this instance; `kept`, an earlier head of this replica, must be in it.
    pub fn check_export(&self, kept: Option<Head>) -> ExportCheck {
        ExportCheck {
            keys: Arc::clone(&self.keys),
            replica: Arc::clone(&self.replica),
            kept_seen: kept.as_ref().is_none_or(|k| k.sequence == 0),
            kept,
            rows: 0,
            chains: BTreeMap::new(),
        }
    }
}

impl ExportCheck {
    /// Takes the next line, without its end.
    ///
    /// # Errors
    /// [`Error::Invalid`] of what is not one of the lines that were exported, in the place that it had.
    pub fn line(&mut self, line: &str) -> Result<()> {
        let number = self.rows + 1;
        let wrong = |what: String| Err(Error::invalid("", format!("line {number}: {what}")));
        let Ok(exported) = serde_json::from_str::<ExportedRow>(line) else {
            return wrong("is no row of an export".into());
        };
        if serde_json::to_string(&exported)? != line {
            return wrong("is not as it was exported".into());
        }
        let ExportedRow { row, previous, mac } = &exported;
        let (Some(before), Some(own)) = (unhex(previous), unhex(mac)) else {
            return wrong("its MACs are not hex".into());
        };
        let details = row.details.to_string();
        let covered = Covered {
            replica: &row.replica,
            sequence: row.sequence,
            at: row.at,
            company: row.company_id.as_deref(),
            actor: (&row.actor_kind, row.actor_id.as_deref(), &row.actor),
            action: &row.action,
            subject: (&row.subject_kind, &row.subject),
            details: &details,
            outcome: &row.outcome,
            times: row.times,
        };
        if !covered.mac(&self.keys, &before).verifies(&own) {
            return wrong(format!(
                "row {} of replica {:?} was edited, or belongs to another instance or master key",
                row.sequence, row.replica
            ));
        }
        match self.chains.get(&row.replica) {
            Some(chain)
                if (chain.head.sequence + 1, &chain.head.mac) != (row.sequence, &before) =>
            {
                return wrong(format!(
                    "row {} of replica {:?} does not follow row {}: rows were removed or moved",
                    row.sequence, row.replica, chain.head.sequence
                ));
            }
            None if (row.sequence == 1) != before.is_empty() => {
                return wrong(format!(
                    "row {} of replica {:?} has no such row before it",
                    row.sequence, row.replica
                ));
            }
            _ => {}
        }
        let head = Head {
            sequence: row.sequence,
            mac: own,
        };
        self.kept_seen |= *row.replica == *self.replica && self.kept.as_ref() == Some(&head);
        let first = row.sequence;
        self.chains
            .entry(exported.row.replica)
            .and_modify(|chain| chain.head = head.clone())
            .or_insert(ExportedChain { first, head });
        self.rows = number;
        Ok(())
    }

    /// What was checked.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where the head that was kept is not in it: its end was cut off.
    pub fn done(self) -> Result<ExportChecked> {
        if !self.kept_seen {
            return Err(kept_is_missing(&self.replica));
        }
        Ok(ExportChecked {
            rows: self.rows,
            chains: self.chains,
        })
    }
}
