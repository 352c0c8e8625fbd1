//! Reading leases.

use std::collections::BTreeMap;

use leasehold_contract::Label;
use serde::Serialize;
use sqlx::QueryBuilder;

use super::label::{self, Owner};
use super::machine::Status;
use super::{Lease, Leases, record};
use crate::error::{Error, Result};
use crate::store::Db;

/// Which leases to list; newest first.
#[derive(Clone, Debug, Default)]
pub struct LeaseFilter {
    /// Of these companies only; empty: of all.
    pub companies: Vec<String>,
    /// Of this environment only.
    pub environment: Option<String>,
    /// Made for this run only.
    pub run: Option<String>,
    /// Of this plugin only.
    pub provider: Option<String>,
    /// In one of these; empty: in any.
    pub statuses: Vec<Status>,
    /// Where the last page ended.
    pub cursor: Option<String>,
    /// At most this many, 1 to 1000; 0 means 100.
    pub limit: u32,
}

/// A page of leases.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeasePage {
    /// Newest first.
    pub items: Vec<Lease>,
    /// The cursor of the next page; none at the end.
    pub next: Option<String>,
}

fn cursor(text: &str) -> Result<(i64, String)> {
    text.split_once('.')
        .and_then(|(at, id)| Some((at.parse().ok()?, id.to_owned())))
        .ok_or_else(|| Error::invalid("/cursor", "must be the cursor of an earlier page"))
}

impl Leases {
    /// One lease.
    pub async fn get(&self, id: &str) -> Result<Lease> {
        record::load(self.store.read(), &self.keys, &self.host, id).await
    }

    /// A page of leases.
    pub async fn list(&self, filter: &LeaseFilter) -> Result<LeasePage> {
        let limit = match filter.limit {
            0 => 100,
            n => n.min(1000),
        };
        let mut sql: QueryBuilder<Db> = QueryBuilder::new("SELECT * FROM leases WHERE 1 = 1");
        if !filter.companies.is_empty() {
            sql.push(" AND company_id IN (");
            let mut list = sql.separated(", ");
            for company in &filter.companies {
                list.push_bind(company);
            }
            sql.push(")");
        }
        if let Some(environment) = &filter.environment {
            sql.push(" AND environment_id = ").push_bind(environment);
        }
        if let Some(run) = &filter.run {
            sql.push(" AND run = ").push_bind(run);
        }
        if let Some(provider) = &filter.provider {
            sql.push(" AND provider = ").push_bind(provider);
        }
        if !filter.statuses.is_empty() {
            sql.push(" AND status IN (");
            let mut list = sql.separated(", ");
            for status in &filter.statuses {
                list.push_bind(status.as_str());
            }
            sql.push(")");
        }
        if let Some(text) = &filter.cursor {
            let (at, id) = cursor(text)?;
            sql.push(" AND (created_at < ")
                .push_bind(at)
                .push(" OR (created_at = ")
                .push_bind(at)
                .push(" AND id < ")
                .push_bind(id)
                .push("))");
        }
        sql.push(" ORDER BY created_at DESC, id DESC LIMIT ")
            .push_bind(i64::from(limit) + 1);
        let rows = sql.build().fetch_all(self.store.read()).await?;
        let mut items = rows
            .iter()
            .map(|row| record::lease(&self.keys, &self.host, row))
            .collect::<Result<Vec<_>>>()?;
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next = items
            .last()
            .filter(|_| more)
            .map(|l| format!("{}.{}", l.created_at, l.id));
        Ok(LeasePage { items, next })
    }

    /// How many leases stand where; every status is there.
    pub async fn counts(&self) -> Result<BTreeMap<Status, i64>> {
        let rows: Vec<(String, i64)> =
            sqlx::query_as("SELECT status, COUNT(*) FROM leases GROUP BY status")
                .fetch_all(self.store.read())
                .await?;
        let mut counts: BTreeMap<Status, i64> = Status::ALL.into_iter().map(|s| (s, 0)).collect();
        for (status, count) in rows {
            let status = Status::parse(&status).ok_or_else(|| Error::corrupt("a lease"))?;
            counts.insert(status, count);
        }
        Ok(counts)
    }

    /// The lease of this host whose owner label stands in `labels`; none when the labels are not ours.
    pub async fn owner_of(&self, labels: &[Label]) -> Result<Option<Lease>> {
        let value = |key: &str| {
            labels
                .iter()
                .find(|l| l.key == key)
                .map(|l| l.value.as_str())
        };
        let (Some(id), Some(proof)) = (value(label::LEASE), value(label::OWNER)) else {
            return Ok(None);
        };
        let lease = match self.get(id).await {
            Ok(lease) => lease,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(e) => return Err(e),
        };
        let owner = Owner {
            host: &self.host,
            incarnation: &lease.incarnation,
            lease: &lease.id,
            acquisition: &lease.acquisition,
        };
        Ok(owner.owns(&self.keys, proof).then_some(lease))
    }
}
