//! Reading the rows: by filter, in the order of commits, forward and backward, and as they are added.

use sqlx::{QueryBuilder, Row as _};

use super::{Activity, ActivityOutcome, ActivityRow};
use crate::error::Result;
use crate::store::{Db, Row};

/// Which rows to list.
#[derive(Clone, Debug, Default)]
pub struct ActivityFilter {
    /// Of this company only: its own rows, and those of environments that all companies share.
    pub company: Option<String>,
    /// By this actor only: a token's id, or what the row calls the actor or its kind.
    pub actor: Option<String>,
    /// Only actions that begin so.
    pub action: Option<String>,
    /// Of this kind of thing only.
    pub subject_kind: Option<String>,
    /// Of this thing only.
    pub subject: Option<String>,
    /// Only what ended so.
    pub outcome: Option<ActivityOutcome>,
    /// Not before this moment, in milliseconds since the epoch.
    pub since: Option<i64>,
    /// Before this moment.
    pub until: Option<i64>,
    /// After this position, oldest first.
    pub after: Option<i64>,
    /// Before this position, newest first; taken when `after` is none.
    pub before: Option<i64>,
    /// At most this many, 1 to 1000; 0 means 100.
    pub limit: u32,
}

impl ActivityFilter {
    fn limit(&self) -> i64 {
        match self.limit {
            0 => 100,
            n => i64::from(n.min(1000)),
        }
    }

    /// The statement: rows up to `top` where that is given. A company's are its own and those that tell of an environment
    /// which all companies share, each by the index of `(company_id, position)`.
    fn query(&self, top: Option<i64>) -> QueryBuilder<Db> {
        let mut query = QueryBuilder::new("SELECT * FROM activity WHERE ");
        if let Some(company) = &self.company {
            query.push("company_id = ").push_bind(company.clone());
            query.push(" AND ");
            self.narrow(&mut query, top);
            query.push(" UNION ALL SELECT * FROM activity WHERE company_id IS NULL");
            query.push(" AND action >= 'environment.' AND action < 'environment/' AND ");
        }
        self.narrow(&mut query, top);
        query.push(" ORDER BY position");
        if self.after.is_none() {
            query.push(" DESC");
        }
        query.push(" LIMIT ").push_bind(self.limit());
        query
    }

    /// Everything but whose.
    fn narrow(&self, query: &mut QueryBuilder<Db>, top: Option<i64>) {
        query.push("position ");
        match (self.after, self.before) {
            (Some(after), _) => query.push("> ").push_bind(after),
            (None, before) => query.push("< ").push_bind(before.unwrap_or(i64::MAX)),
        };
        if let Some(top) = top {
            query.push(" AND position <= ").push_bind(top);
        }
        let texts = [
            (" AND subject_kind = ", &self.subject_kind),
            (" AND subject = ", &self.subject),
        ];
        for (sql, text) in texts {
            if let Some(text) = text {
                query.push(sql).push_bind(text.clone());
            }
        }
        if let Some(actor) = &self.actor {
            for (i, column) in ["actor_id", "actor_kind", "actor"].into_iter().enumerate() {
                query.push(if i == 0 { " AND (" } else { " OR " });
                query.push(column).push(" = ").push_bind(actor.clone());
            }
            query.push(")");
        }
        if let Some(action) = &self.action {
            query.push(" AND substr(action, 1, length(");
            query.push_bind(action.clone()).push(")) = ");
            query.push_bind(action.clone());
        }
        if let Some(outcome) = self.outcome {
            query.push(" AND outcome = ").push_bind(outcome.as_str());
        }
        if let Some(since) = self.since {
            query.push(" AND at >= ").push_bind(since);
        }
        if let Some(until) = self.until {
            query.push(" AND at < ").push_bind(until);
        }
    }
}

pub(super) fn row(row: &Row) -> Result<ActivityRow> {
    Ok(ActivityRow {
        position: row.try_get("position")?,
        replica: row.try_get("replica")?,
        sequence: row.try_get("sequence")?,
        at: row.try_get("at")?,
        company_id: row.try_get("company_id")?,
        actor_kind: row.try_get("actor_kind")?,
        actor_id: row.try_get("actor_id")?,
        actor: row.try_get("actor")?,
        action: row.try_get("action")?,
        subject_kind: row.try_get("subject_kind")?,
        subject: row.try_get("subject")?,
        outcome: row.try_get("outcome")?,
        times: row.try_get("times")?,
        details: serde_json::from_str(row.try_get("details")?)?,
    })
}

impl Activity {
    /// Rows of a filter: with `after` the oldest first, else the newest first. What was refused before the call is in it.
    pub async fn list(&self, filter: &ActivityFilter) -> Result<Vec<ActivityRow>> {
        self.denials.before_reading(&self.store).await;
        let rows = filter
            .query(None)
            .build()
            .fetch_all(self.store.read())
            .await?;
        rows.iter().map(row).collect()
    }

    /// The position of the newest row; 0 when there is none.
    pub async fn top(&self) -> Result<i64> {
        Ok(
            sqlx::query_scalar("SELECT coalesce(max(position), 0) FROM activity")
                .fetch_one(self.store.read())
                .await?,
        )
    }

    /// The oldest rows of a filter after a position, and the position that was looked up to: where to go on from.
    pub async fn tail(
        &self,
        filter: &ActivityFilter,
        after: i64,
    ) -> Result<(Vec<ActivityRow>, i64)> {
        // What is committed after this is read by the next call: positions grow in the order of commits.
        let top = self.top().await?;
        if top <= after {
            return Ok((Vec::new(), after));
        }
        let filter = ActivityFilter {
            after: Some(after),
            before: None,
            ..filter.clone()
        };
        let rows = filter
            .query(Some(top))
            .build()
            .fetch_all(self.store.read())
            .await?;
        let rows: Vec<ActivityRow> = rows.iter().map(row).collect::<Result<_>>()?;
        let full = i64::try_from(rows.len()).unwrap_or(i64::MAX) >= filter.limit();
        let seen = rows.last().map(|row| row.position);
        Ok((rows, seen.filter(|_| full).unwrap_or(top)))
    }
}
